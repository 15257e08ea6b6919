package compat

import (
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

var levels = []gocb.DurabilityLevel{
	gocb.DurabilityLevelMajority,
	gocb.DurabilityLevelMajorityAndPersistOnMaster,
	gocb.DurabilityLevelPersistToMajority,
}

func TestDurableWrites(t *testing.T) {
	for _, scheme := range []string{"couchbase", "couchbases"} {
		collection := openBucket(t, scheme, "main").DefaultCollection()
		mutated := must[*gocb.MutationResult](t)
		for _, level := range levels {
			key := newKey()
			mutated(collection.Insert(key, document{"one", 1}, &gocb.InsertOptions{DurabilityLevel: level}))
			stored := mutated(collection.Upsert(key, document{"two", 2}, &gocb.UpsertOptions{DurabilityLevel: level}))
			options := &gocb.ReplaceOptions{DurabilityLevel: level, Cas: stored.Cas()}
			mutated(collection.Replace(key, document{"three", 3}, options))
			if got := content(t, collection, key); got.Year != 3 {
				t.Fatalf("read %v", got)
			}
			mutated(collection.Remove(key, &gocb.RemoveOptions{DurabilityLevel: level}))
			counted := must[*gocb.CounterResult](t)(collection.Binary().Increment(
				key+"-n", &gocb.IncrementOptions{Initial: 1, Delta: 1, DurabilityLevel: level}))
			if counted.Content() != 1 {
				t.Fatalf("counted %d", counted.Content())
			}
		}
	}
}

func TestDurabilityThatCannotBe(t *testing.T) {
	replicated := openBucket(t, "couchbase", "replicated").DefaultCollection()
	for _, level := range levels {
		_, err := replicated.Upsert(newKey(), 1, &gocb.UpsertOptions{DurabilityLevel: level})
		wantError(t, err, gocb.ErrDurabilityImpossible)
	}
	ephemeral := openBucket(t, "couchbase", "ephemeral").DefaultCollection()
	must[*gocb.MutationResult](t)(ephemeral.Upsert(newKey(), 1, &gocb.UpsertOptions{DurabilityLevel: levels[0]}))
	for _, level := range levels[1:] {
		_, err := ephemeral.Upsert(newKey(), 1, &gocb.UpsertOptions{DurabilityLevel: level})
		wantError(t, err, gocb.ErrDurabilityLevelNotAvailable)
	}
}

func TestBucketThatInsists(t *testing.T) {
	cluster := clusters["couchbase"]
	manager, name, key := cluster.Buckets(), "b"+newKey()[3:], newKey()
	settings := gocb.BucketSettings{
		Name: name, RAMQuotaMB: 100, BucketType: gocb.CouchbaseBucketType,
		MinimumDurabilityLevel: gocb.DurabilityLevelPersistToMajority,
	}
	fatal(t, manager.CreateBucket(gocb.CreateBucketSettings{BucketSettings: settings}, nil))
	defer func() { _ = manager.DropBucket(name, nil) }()
	found := must[*gocb.BucketSettings](t)(manager.GetBucket(name, nil))
	if found.MinimumDurabilityLevel != gocb.DurabilityLevelPersistToMajority {
		t.Fatalf("%+v", found)
	}
	collection := openBucket(t, "couchbase", name).DefaultCollection()
	must[*gocb.MutationResult](t)(collection.Upsert(key, 1, nil))
	settings.NumReplicas, settings.MinimumDurabilityLevel = 1, gocb.DurabilityLevelMajority
	if err := manager.UpdateBucket(settings, nil); err == nil {
		t.Fatal("a minimum that one node cannot reach")
	}
	must[*gocb.MutationResult](t)(collection.Upsert(key, 2, nil))
}

func TestObservedPersistence(t *testing.T) {
	collection := openBucket(t, "couchbase", "main").DefaultCollection()
	key := newKey()
	must[*gocb.MutationResult](t)(collection.Upsert(key, 1, &gocb.UpsertOptions{PersistTo: 1}))
	must[*gocb.MutationResult](t)(collection.Remove(key, &gocb.RemoveOptions{PersistTo: 1}))
	_, err := collection.Upsert(key, 1, &gocb.UpsertOptions{PersistTo: 2, ReplicateTo: 1, Timeout: 2 * time.Second})
	if err == nil {
		t.Fatal("two copies of one")
	}
}
