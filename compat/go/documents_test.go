package compat

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

type document struct {
	Title string `json:"title"`
	Year  int    `json:"year"`
}

func wantError(t *testing.T, got error, want ...error) {
	t.Helper()
	for _, each := range want {
		if errors.Is(got, each) {
			return
		}
	}
	t.Fatalf("got %v, want one of %v", got, want)
}

func content(t *testing.T, collection *gocb.Collection, key string) (read document) {
	t.Helper()
	result := must[*gocb.GetResult](t)(collection.Get(key, nil))
	if err := result.Content(&read); err != nil {
		t.Fatal(err)
	}
	return read
}

func goneWithin(t *testing.T, collection *gocb.Collection, key string, limit time.Duration) {
	t.Helper()
	for until := time.Now().Add(limit); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if !must[*gocb.ExistsResult](t)(collection.Exists(key, nil)).Exists() {
			return
		}
	}
	t.Fatalf("%s is still there after %v", key, limit)
}

func TestStoreAndRead(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		_, err := collection.Get(key, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
		_, err = collection.Replace(key, document{}, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
		first := must[*gocb.MutationResult](t)(collection.Insert(key, document{"Águas de Março", 1972}, nil))
		_, err = collection.Insert(key, document{}, nil)
		wantError(t, err, gocb.ErrDocumentExists)
		if got := content(t, collection, key); got != (document{"Águas de Março", 1972}) {
			t.Fatalf("read %v", got)
		}
		second := must[*gocb.MutationResult](t)(collection.Upsert(key, document{"two", 2}, nil))
		_, err = collection.Replace(key, document{}, &gocb.ReplaceOptions{Cas: first.Cas()})
		wantError(t, err, gocb.ErrCasMismatch)
		third := must[*gocb.MutationResult](t)(
			collection.Replace(key, document{"three", 3}, &gocb.ReplaceOptions{Cas: second.Cas()}))
		if got := must[*gocb.GetResult](t)(collection.Get(key, nil)); got.Cas() != third.Cas() {
			t.Fatalf("CAS %d read, %d stored", got.Cas(), third.Cas())
		}
		_, err = collection.Remove(key, &gocb.RemoveOptions{Cas: first.Cas()})
		wantError(t, err, gocb.ErrCasMismatch)
		must[*gocb.MutationResult](t)(collection.Remove(key, &gocb.RemoveOptions{Cas: third.Cas()}))
		_, err = collection.Remove(key, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
		if must[*gocb.ExistsResult](t)(collection.Exists(key, nil)).Exists() {
			t.Fatal("exists after remove")
		}
	})
}

func TestExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		mutated := must[*gocb.MutationResult](t)
		mutated(collection.Upsert(key+"-1", document{}, &gocb.UpsertOptions{Expiry: time.Second}))
		mutated(collection.Upsert(key+"-2", document{}, &gocb.UpsertOptions{Expiry: 2 * time.Second}))
		mutated(collection.Upsert(key+"-2", document{}, &gocb.UpsertOptions{PreserveExpiry: true}))
		mutated(collection.Replace(key+"-2", document{}, &gocb.ReplaceOptions{PreserveExpiry: true}))
		mutated(collection.Upsert(key+"-3", document{}, &gocb.UpsertOptions{Expiry: time.Second}))
		mutated(collection.Upsert(key+"-3", document{}, nil))
		mutated(collection.Upsert(key+"-4", document{}, &gocb.UpsertOptions{Expiry: 40 * 24 * time.Hour}))
		mutated(collection.Upsert(key+"-5", document{}, nil))
		mutated(collection.Touch(key+"-5", time.Hour, nil))
		must[*gocb.GetResult](t)(collection.GetAndTouch(key+"-5", time.Second, nil))
		for _, name := range []string{"-1", "-2", "-5"} {
			goneWithin(t, collection, key+name, 5*time.Second)
		}
		for _, name := range []string{"-3", "-4"} {
			must[*gocb.GetResult](t)(collection.Get(key+name, nil))
		}
		_, err := collection.Touch(key+"-missing", time.Second, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
		_, err = collection.GetAndTouch(key+"-missing", time.Second, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
	})
}

func TestCounters(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		binary := collection.Binary()
		count := must[*gocb.CounterResult](t)
		_, err := binary.Increment(key, &gocb.IncrementOptions{Initial: -1, Delta: 1})
		wantError(t, err, gocb.ErrDocumentNotFound)
		results := []uint64{
			count(binary.Increment(key, &gocb.IncrementOptions{Initial: 10, Delta: 1})).Content(),
			count(binary.Increment(key, &gocb.IncrementOptions{Initial: 10, Delta: 32})).Content(),
			count(binary.Decrement(key, &gocb.DecrementOptions{Delta: 2})).Content(),
			count(binary.Decrement(key, &gocb.DecrementOptions{Delta: 100})).Content(),
		}
		if want := []uint64{10, 42, 40, 0}; !reflect.DeepEqual(results, want) {
			t.Fatalf("counted %v, want %v", results, want)
		}
		must[*gocb.MutationResult](t)(collection.Upsert(key, "words", nil))
		_, err = binary.Increment(key, &gocb.IncrementOptions{Delta: 1})
		wantError(t, err, gocb.ErrDeltaInvalid)
	})
}

func TestAppendAndPrepend(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		raw := gocb.NewRawBinaryTranscoder()
		_, err := collection.Binary().Append(key, []byte("x"), nil)
		if err == nil {
			t.Fatal("appended to nothing")
		}
		first := must[*gocb.MutationResult](t)(
			collection.Upsert(key, []byte("middle"), &gocb.UpsertOptions{Transcoder: raw}))
		must[*gocb.MutationResult](t)(
			collection.Binary().Append(key, []byte("-end"), &gocb.AppendOptions{Cas: first.Cas()}))
		must[*gocb.MutationResult](t)(collection.Binary().Prepend(key, []byte("start-"), nil))
		_, err = collection.Binary().Append(key, []byte("x"), &gocb.AppendOptions{Cas: first.Cas()})
		wantError(t, err, gocb.ErrCasMismatch)
		var read []byte
		result := must[*gocb.GetResult](t)(collection.Get(key, &gocb.GetOptions{Transcoder: raw}))
		if err := result.Content(&read); err != nil || string(read) != "start-middle-end" {
			t.Fatalf("%q, %v", read, err)
		}
	})
}

func TestLocks(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		must[*gocb.MutationResult](t)(collection.Upsert(key, document{"one", 1}, nil))
		locked := must[*gocb.GetResult](t)(collection.GetAndLock(key, 15*time.Second, nil))
		if got := content(t, collection, key); got.Year != 1 {
			t.Fatalf("read %v while locked", got)
		}
		_, err := collection.Upsert(key, document{}, &gocb.UpsertOptions{Timeout: 800 * time.Millisecond})
		wantError(t, err, gocb.ErrTimeout, gocb.ErrDocumentLocked)
		err = collection.Unlock(key, locked.Cas()+1, &gocb.UnlockOptions{Timeout: 800 * time.Millisecond})
		wantError(t, err, gocb.ErrTimeout, gocb.ErrDocumentLocked, gocb.ErrCasMismatch)
		if err = collection.Unlock(key, locked.Cas(), nil); err != nil {
			t.Fatal(err)
		}
		err = collection.Unlock(key, locked.Cas(), nil)
		wantError(t, err, gocb.ErrDocumentNotLocked)
		again := must[*gocb.GetResult](t)(collection.GetAndLock(key, time.Second, nil))
		must[*gocb.MutationResult](t)(
			collection.Replace(key, document{"two", 2}, &gocb.ReplaceOptions{Cas: again.Cas()}))
		must[*gocb.GetResult](t)(collection.GetAndLock(key, time.Second, nil))
		// Retried by the SDK until the lock has run out.
		must[*gocb.MutationResult](t)(collection.Upsert(key, document{"three", 3}, nil))
		_, err = collection.GetAndLock(key+"-missing", time.Second, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
	})
}

func TestTranscoders(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		everything := make([]byte, 256)
		for n := range everything {
			everything[n] = byte(n)
		}
		for _, each := range []struct {
			transcoder gocb.Transcoder
			stored     any
			read       any
		}{
			{gocb.NewRawBinaryTranscoder(), everything, &[]byte{}},
			{gocb.NewRawStringTranscoder(), "naïve ☃ 🎵", new(string)},
			{gocb.NewRawJSONTranscoder(), []byte(`{"raw":  [1, 2.5e3]}`), &[]byte{}},
			{gocb.NewJSONTranscoder(), []any{"a", 1.5, nil, map[string]any{}}, &[]any{}},
		} {
			must[*gocb.MutationResult](t)(collection.Upsert(key, each.stored, &gocb.UpsertOptions{Transcoder: each.transcoder}))
			result := must[*gocb.GetResult](t)(collection.Get(key, &gocb.GetOptions{Transcoder: each.transcoder}))
			if err := result.Content(each.read); err != nil {
				t.Fatal(err)
			}
			if got := reflect.ValueOf(each.read).Elem().Interface(); !reflect.DeepEqual(got, each.stored) {
				t.Fatalf("%T: stored %v, read %v", each.transcoder, each.stored, got)
			}
		}
	})
}

func TestMutationTokens(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		first := must[*gocb.MutationResult](t)(collection.Upsert(key, 1, nil)).MutationToken()
		second := must[*gocb.MutationResult](t)(collection.Remove(key, nil)).MutationToken()
		if first == nil || second == nil {
			t.Fatal("no mutation token")
		}
		if second.SequenceNumber() <= first.SequenceNumber() || first.PartitionUUID() != second.PartitionUUID() {
			t.Fatalf("%v then %v", first, second)
		}
	})
}

func TestKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		for _, odd := range []string{key + " space", key + "/☃/ключ/鍵", strings.Repeat("x", 250-len(key)) + key} {
			must[*gocb.MutationResult](t)(collection.Upsert(odd, document{odd, 1}, nil))
			if got := content(t, collection, odd); got.Title != odd {
				t.Fatalf("%q read as %v", odd, got)
			}
			must[*gocb.MutationResult](t)(collection.Remove(odd, nil))
		}
		_, err := collection.Upsert(strings.Repeat("k", 251), 1, nil)
		wantError(t, err, gocb.ErrInvalidArgument)
	})
}

func TestLargeValues(t *testing.T) {
	const limit = 20 * 1024 * 1024
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		raw := gocb.NewRawBinaryTranscoder()
		put := func(value []byte) error {
			_, err := collection.Upsert(key, value, &gocb.UpsertOptions{Transcoder: raw, Timeout: 30 * time.Second})
			return err
		}
		random := make([]byte, limit+1)
		_, _ = rand.Read(random)
		compressible := bytes.Repeat([]byte("all work and no play "), 100_000)
		for _, value := range [][]byte{{}, random[:limit], compressible} {
			if err := put(value); err != nil {
				t.Fatalf("%d bytes: %v", len(value), err)
			}
			var read []byte
			result := must[*gocb.GetResult](t)(collection.Get(key, &gocb.GetOptions{Transcoder: raw, Timeout: 30 * time.Second}))
			if err := result.Content(&read); err != nil || !bytes.Equal(read, value) {
				t.Fatalf("%d bytes came back as %d, %v", len(value), len(read), err)
			}
		}
		wantError(t, put(random), gocb.ErrValueTooLarge)
		wantError(t, put(make([]byte, limit+1)), gocb.ErrValueTooLarge)
	})
}

func TestThousandsAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		// The SDK itself refuses to queue more than 2048.
		const count = 2000
		failures := make(chan error, 2*count)
		var wait sync.WaitGroup
		for n := range count {
			wait.Add(1)
			go func() {
				defer wait.Done()
				name := fmt.Sprintf("%s-%d", key, n)
				if _, err := collection.Upsert(name, document{name, n}, nil); err != nil {
					failures <- err
					return
				}
				result, err := collection.Get(name, nil)
				if err != nil {
					failures <- err
					return
				}
				var read document
				if err := result.Content(&read); err != nil || read != (document{name, n}) {
					failures <- fmt.Errorf("%s read as %v, %v", name, read, err)
				}
			}()
		}
		wait.Wait()
		close(failures)
		for err := range failures {
			t.Fatal(err)
		}
		bulk := make([]gocb.BulkOp, count)
		for n := range bulk {
			bulk[n] = &gocb.GetOp{ID: fmt.Sprintf("%s-%d", key, n)}
		}
		if err := collection.Do(bulk, nil); err != nil {
			t.Fatal(err)
		}
		for n, op := range bulk {
			if err := op.(*gocb.GetOp).Err; err != nil {
				t.Fatalf("%d: %v", n, err)
			}
		}
	})
}

func TestReplicaReads(t *testing.T) {
	for _, name := range []string{"main", "replicated"} {
		collection := openBucket(t, "couchbase", name).DefaultCollection()
		key := newKey()
		must[*gocb.MutationResult](t)(collection.Upsert(key, document{"one", 1}, nil))
		result := must[*gocb.GetReplicaResult](t)(collection.GetAnyReplica(key, nil))
		if result.IsReplica() {
			t.Fatal("read from a replica that is not there")
		}
	}
}
