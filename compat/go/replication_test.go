package compat

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10"
)

// acceptLastWrite says that the sender knows how the bucket resolves conflicts.
const acceptLastWrite = 0x02

// side is one of two buckets that are replicated to each other the way XDCR does it.
type side struct {
	t       *testing.T
	agent   *gocbcore.Agent
	options uint32
}

func newSide(t *testing.T, bucket string, options uint32) side {
	t.Helper()
	config := gocbcore.AgentConfig{
		BucketName: bucket,
		IoConfig:   gocbcore.IoConfig{UseMutationTokens: true, UseCollections: true},
		SecurityConfig: gocbcore.SecurityConfig{
			Auth: gocbcore.PasswordAuthProvider{
				Username: os.Getenv("SETTEE_USERNAME"), Password: os.Getenv("SETTEE_PASSWORD"),
			},
		},
	}
	fatal(t, config.FromConnStr("couchbase://"+os.Getenv("SETTEE_ADDRESS")))
	agent := must[*gocbcore.Agent](t)(gocbcore.CreateAgent(&config))
	t.Cleanup(func() { _ = agent.Close() })
	s := side{t, agent, options}
	_, err := await(func(done func(*gocbcore.WaitUntilReadyResult, error)) (gocbcore.PendingOp, error) {
		return agent.WaitUntilReady(time.Now().Add(patience), gocbcore.WaitUntilReadyOptions{}, done)
	})
	fatal(t, err)
	return s
}

// await makes a call out of an operation with a callback.
func await[R any](start func(func(R, error)) (gocbcore.PendingOp, error)) (R, error) {
	type outcome struct {
		result R
		err    error
	}
	done := make(chan outcome, 1)
	if _, err := start(func(result R, err error) { done <- outcome{result, err} }); err != nil {
		var none R
		return none, err
	}
	got := <-done
	return got.result, got.err
}

func (s side) upsert(key []byte, value string, expiry uint32) {
	s.t.Helper()
	_, err := await(func(done func(*gocbcore.StoreResult, error)) (gocbcore.PendingOp, error) {
		return s.agent.Set(gocbcore.SetOptions{Key: key, Value: []byte(value), Flags: 7, Expiry: expiry}, done)
	})
	fatal(s.t, err)
}

func (s side) remove(key []byte) {
	s.t.Helper()
	_, err := await(func(done func(*gocbcore.DeleteResult, error)) (gocbcore.PendingOp, error) {
		return s.agent.Delete(gocbcore.DeleteOptions{Key: key}, done)
	})
	if !errors.Is(err, gocbcore.ErrDocumentNotFound) {
		fatal(s.t, err)
	}
}

// meta tells of documents and tombstones; nil of nothing.
func (s side) meta(key []byte) *gocbcore.GetMetaResult {
	s.t.Helper()
	meta, err := await(func(done func(*gocbcore.GetMetaResult, error)) (gocbcore.PendingOp, error) {
		return s.agent.GetMeta(gocbcore.GetMetaOptions{Key: key}, done)
	})
	if errors.Is(err, gocbcore.ErrDocumentNotFound) {
		return nil
	}
	fatal(s.t, err)
	return meta
}

// send brings the sender's version of a key to the other side; whether it won there.
func (s side) send(key []byte, to side) bool {
	s.t.Helper()
	meta := s.meta(key)
	if meta == nil {
		return false
	}
	var err error
	if meta.Deleted != 0 {
		_, err = await(func(done func(*gocbcore.DeleteMetaResult, error)) (gocbcore.PendingOp, error) {
			return to.agent.DeleteMeta(gocbcore.DeleteMetaOptions{
				Key: key, Options: to.options, Flags: meta.Flags, Expiry: meta.Expiry, Cas: meta.Cas, RevNo: uint64(meta.SeqNo),
			}, done)
		})
	} else {
		var got *gocbcore.GetResult
		got, err = await(func(done func(*gocbcore.GetResult, error)) (gocbcore.PendingOp, error) {
			return s.agent.Get(gocbcore.GetOptions{Key: key}, done)
		})
		fatal(s.t, err)
		_, err = await(func(done func(*gocbcore.SetMetaResult, error)) (gocbcore.PendingOp, error) {
			return to.agent.SetMeta(gocbcore.SetMetaOptions{
				Key: key, Value: got.Value, Datatype: got.Datatype, Options: to.options,
				Flags: meta.Flags, Expiry: meta.Expiry, Cas: meta.Cas, RevNo: uint64(meta.SeqNo),
			}, done)
		})
	}
	if errors.Is(err, gocbcore.ErrDocumentExists) {
		return false
	}
	fatal(s.t, err)
	return true
}

func TestBucketsThatReplicateToEachOtherConverge(t *testing.T) {
	for _, rule := range []struct {
		conflict gocb.ConflictResolutionType
		options  uint32
	}{{gocb.ConflictResolutionTypeSequenceNumber, 0}, {gocb.ConflictResolutionTypeTimestamp, acceptLastWrite}} {
		t.Run(string(rule.conflict), func(t *testing.T) {
			manager := clusters["couchbase"].Buckets()
			var sides [2]side
			for number, kind := range []gocb.BucketType{gocb.CouchbaseBucketType, gocb.EphemeralBucketType} {
				name := "x" + newKey()[3:]
				settings := gocb.BucketSettings{Name: name, RAMQuotaMB: 100, BucketType: kind}
				fatal(t, manager.CreateBucket(
					gocb.CreateBucketSettings{BucketSettings: settings, ConflictResolutionType: rule.conflict}, nil))
				t.Cleanup(func() { _ = manager.DropBucket(name, nil) })
				openBucket(t, "couchbase", name)
				sides[number] = newSide(t, name, rule.options)
			}
			converge(t, sides)
		})
	}
}

func converge(t *testing.T, sides [2]side) {
	keys := make([][]byte, 40)
	for number := range keys {
		keys[number] = []byte(fmt.Sprintf("replicated-%d", number))
	}
	won := 0
	for round := range 5 {
		for _, key := range keys {
			for range rand.IntN(4) {
				writer := sides[rand.IntN(2)]
				// Two clocks that show the same make two versions with one CAS, which no rule can tell apart.
				time.Sleep(time.Millisecond)
				if rand.IntN(4) == 0 {
					writer.remove(key)
				} else {
					writer.upsert(key, fmt.Sprintf(`{"round":%d,"by":%d}`, round, rand.Int()), uint32(rand.IntN(2)*1000))
				}
			}
		}
		for _, key := range keys {
			for from := range sides {
				if sides[from].send(key, sides[1-from]) {
					won++
				}
			}
			here, there := sides[0].meta(key), sides[1].meta(key)
			if (here == nil) != (there == nil) {
				t.Fatalf("%s: %+v and %+v", key, here, there)
			}
			if here != nil && (here.Cas != there.Cas || here.SeqNo != there.SeqNo || here.Deleted != there.Deleted ||
				here.Flags != there.Flags || here.Expiry != there.Expiry) {
				t.Fatalf("%s: %+v and %+v", key, here, there)
			}
			if sides[0].send(key, sides[1]) || sides[1].send(key, sides[0]) {
				t.Fatalf("%s: what is equal was taken for newer", key)
			}
		}
	}
	if won < len(keys) {
		t.Fatalf("only %d versions won", won)
	}
}
