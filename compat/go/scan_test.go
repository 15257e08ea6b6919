package compat

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

const scanned = 300

// scanCollection makes a collection that holds documents song-000 and so on, and a few others.
func scanCollection(t *testing.T, scheme string) (*gocb.Collection, []string, *gocb.MutationState) {
	t.Helper()
	bucket := openBucket(t, scheme, "main")
	name := "scan" + newKey()[3:]
	fatal(t, bucket.CollectionsV2().CreateCollection("_default", name, nil, nil))
	t.Cleanup(func() { _ = bucket.CollectionsV2().DropCollection("_default", name, nil) })
	collection := bucket.Scope("_default").Collection(name)
	eventually(t, func() error { _, err := collection.Upsert("other", 1, nil); return err })
	state := gocb.NewMutationState()
	var ids []string
	for n := range scanned {
		id := fmt.Sprintf("song-%03d", n)
		result := must[*gocb.MutationResult](t)(collection.Upsert(id, document{id, n}, nil))
		state.Add(*result.MutationToken())
		ids = append(ids, id)
	}
	return collection, ids, state
}

// scan reads a scan to its end: the ids, sorted. Contents are checked where there are any.
func scan(t *testing.T, collection *gocb.Collection, kind gocb.ScanType, options *gocb.ScanOptions) []string {
	t.Helper()
	result := must[*gocb.ScanResult](t)(collection.Scan(kind, options))
	var ids []string
	for item := result.Next(); item != nil; item = result.Next() {
		ids = append(ids, item.ID())
		if item.IDOnly() != options.IDsOnly {
			t.Fatalf("%s: id only is %v", item.ID(), item.IDOnly())
		}
		if options.IDsOnly || item.ID() == "other" {
			continue
		}
		var got document
		fatal(t, item.Content(&got))
		if got.Title != item.ID() || item.Cas() == 0 {
			t.Fatalf("%s: %v, CAS %v", item.ID(), got, item.Cas())
		}
	}
	fatal(t, result.Err())
	slices.Sort(ids)
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Fatal("an id came twice")
	}
	return ids
}

func same(t *testing.T, found, expected []string) {
	t.Helper()
	if !slices.Equal(found, expected) {
		t.Fatalf("%d ids %v, expected %d", len(found), found, len(expected))
	}
}

func TestScans(t *testing.T) {
	for _, scheme := range []string{"couchbase", "couchbases"} {
		collection, ids, state := scanCollection(t, scheme)
		all := append([]string{"other"}, ids...)
		same(t, scan(t, collection, gocb.RangeScan{}, &gocb.ScanOptions{ConsistentWith: state, Concurrency: 16}), all)
		quick := &gocb.ScanOptions{IDsOnly: true, Concurrency: 32}
		same(t, scan(t, collection, gocb.NewRangeScanForPrefix("song-1"), quick), ids[100:200])
		bounded := gocb.RangeScan{
			From: &gocb.ScanTerm{Term: "song-010", Exclusive: true}, To: &gocb.ScanTerm{Term: "song-020"},
		}
		same(t, scan(t, collection, bounded, quick), ids[11:21])
		bounded.To.Exclusive = true
		same(t, scan(t, collection, bounded, &gocb.ScanOptions{Concurrency: 8}), ids[11:20])
		same(t, scan(t, collection, gocb.NewRangeScanForPrefix("nothing"), quick), nil)
		one, none := uint32(1), uint32(0)
		small := &gocb.ScanOptions{BatchItemLimit: &one, BatchByteLimit: &none, Concurrency: 16}
		same(t, scan(t, collection, gocb.NewRangeScanForPrefix("song-"), small), ids)
	}
}

func TestSamples(t *testing.T) {
	collection, ids, _ := scanCollection(t, "couchbase")
	options := &gocb.ScanOptions{IDsOnly: true, Concurrency: 16}
	found := scan(t, collection, gocb.SamplingScan{Limit: 40, Seed: 7}, options)
	if len(found) != 40 {
		t.Fatalf("%d documents instead of 40", len(found))
	}
	found = scan(t, collection, gocb.SamplingScan{Limit: 1000, Seed: 7}, options)
	same(t, found, append([]string{"other"}, ids...))
}

func TestAScanOfWhatIsNotThere(t *testing.T) {
	bucket := openBucket(t, "couchbase", "main")
	missing := bucket.Scope("_default").Collection("missing" + newKey()[3:])
	_, err := missing.Scan(gocb.RangeScan{}, &gocb.ScanOptions{Timeout: 2 * time.Second})
	if err == nil {
		t.Fatal("a collection that does not exist was scanned")
	}
	ephemeral := openBucket(t, "couchbase", "ephemeral").DefaultCollection()
	_, err = ephemeral.Scan(gocb.RangeScan{}, nil)
	wantError(t, err, gocb.ErrFeatureNotAvailable)
}

// TestAScanOfWhatMemoryDoesNotHold reads more than fits the bucket's quota: most values come from disk.
func TestAScanOfWhatMemoryDoesNotHold(t *testing.T) {
	manager, name := clusters["couchbase"].Buckets(), "large"+newKey()[3:11]
	settings := gocb.BucketSettings{Name: name, RAMQuotaMB: 100, BucketType: gocb.CouchbaseBucketType}
	fatal(t, manager.CreateBucket(gocb.CreateBucketSettings{BucketSettings: settings}, nil))
	t.Cleanup(func() { _ = manager.DropBucket(name, nil) })
	var bucket *gocb.Bucket
	eventually(t, func() error {
		bucket = clusters["couchbase"].Bucket(name)
		return bucket.WaitUntilReady(time.Second, nil)
	})
	collection, body := bucket.DefaultCollection(), make([]byte, 64<<10)
	value := func(id string) []byte {
		copy(body, id)
		return body
	}
	transcoder := gocb.NewRawBinaryTranscoder()
	const documents = 3000
	for n := range documents {
		id := fmt.Sprintf("large-%04d", n)
		eventually(t, func() error {
			_, err := collection.Upsert(id, value(id), &gocb.UpsertOptions{Transcoder: transcoder})
			return err
		})
	}
	result := must[*gocb.ScanResult](t)(collection.Scan(gocb.NewRangeScanForPrefix("large-"), &gocb.ScanOptions{
		Transcoder: transcoder, Concurrency: 16, Timeout: time.Minute,
	}))
	found := map[string]bool{}
	for item := result.Next(); item != nil; item = result.Next() {
		var got []byte
		fatal(t, item.Content(&got))
		if string(got) != string(value(item.ID())) {
			t.Fatalf("%s is not what was stored", item.ID())
		}
		found[item.ID()] = true
	}
	fatal(t, result.Err())
	if len(found) != documents {
		t.Fatalf("%d documents of %d", len(found), documents)
	}
}
