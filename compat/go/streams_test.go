package compat

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

const endless = gocbcore.SeqNo(0xffffffffffffffff)

// version is what a stream told last of a document.
type version struct {
	cas     uint64
	value   string
	deleted bool
	expired bool
}

// follower keeps what streams of one agent tell.
type follower struct {
	sync.Mutex
	t         *testing.T
	names     map[uint32]string
	documents map[string]version
	byStream  map[uint16]map[string]bool
	seqnos    map[uint16]uint64
	ends      map[uint16]error
	unordered int
}

func newFollower(t *testing.T) *follower {
	return &follower{
		t: t, names: map[uint32]string{0: "_default"}, documents: map[string]version{},
		byStream: map[uint16]map[string]bool{}, seqnos: map[uint16]uint64{}, ends: map[uint16]error{},
	}
}

func (f *follower) take(vb, stream uint16, collection uint32, seqno uint64, key []byte, found version) {
	f.Lock()
	defer f.Unlock()
	name, known := f.names[collection]
	if !known {
		f.t.Errorf("%s: a document of collection %d, which has not begun", key, collection)
	}
	name += "/" + string(key)
	if f.byStream[stream] == nil {
		f.byStream[stream] = map[string]bool{}
	}
	f.byStream[stream][name] = true
	f.documents[name] = found
	f.seqnos[vb] = max(f.seqnos[vb], seqno)
}

func (f *follower) SnapshotMarker(gocbcore.DcpSnapshotMarker) {}

func (f *follower) Mutation(m gocbcore.DcpMutation) {
	f.take(m.VbID, m.StreamID, m.CollectionID, m.SeqNo, m.Key, version{cas: m.Cas, value: string(m.Value)})
}

func (f *follower) Deletion(d gocbcore.DcpDeletion) {
	f.take(d.VbID, d.StreamID, d.CollectionID, d.SeqNo, d.Key, version{cas: d.Cas, deleted: true})
}

func (f *follower) Expiration(e gocbcore.DcpExpiration) {
	f.take(e.VbID, e.StreamID, e.CollectionID, e.SeqNo, e.Key, version{cas: e.Cas, deleted: true, expired: true})
}

func (f *follower) End(end gocbcore.DcpStreamEnd, err error) {
	f.Lock()
	defer f.Unlock()
	f.ends[end.VbID] = err
}

func (f *follower) advance(vb uint16, seqno uint64) {
	f.seqnos[vb] = max(f.seqnos[vb], seqno)
}

func (f *follower) CreateCollection(c gocbcore.DcpCollectionCreation) {
	f.Lock()
	defer f.Unlock()
	f.names[c.CollectionID] = string(c.Key)
	f.advance(c.VbID, c.SeqNo)
}

func (f *follower) DeleteCollection(c gocbcore.DcpCollectionDeletion) {
	f.Lock()
	defer f.Unlock()
	for name := range f.documents {
		if strings.HasPrefix(name, f.names[c.CollectionID]+"/") {
			delete(f.documents, name)
		}
	}
	f.advance(c.VbID, c.SeqNo)
}

func (f *follower) FlushCollection(gocbcore.DcpCollectionFlush) {}
func (f *follower) CreateScope(s gocbcore.DcpScopeCreation) {
	f.SeqNoAdvanced(position(s.VbID, s.SeqNo))
}
func (f *follower) DeleteScope(s gocbcore.DcpScopeDeletion) {
	f.SeqNoAdvanced(position(s.VbID, s.SeqNo))
}
func (f *follower) ModifyCollection(gocbcore.DcpCollectionModification) {}

func (f *follower) OSOSnapshot(gocbcore.DcpOSOSnapshot) {
	f.Lock()
	defer f.Unlock()
	f.unordered++
}

func (f *follower) SeqNoAdvanced(a gocbcore.DcpSeqNoAdvanced) {
	f.Lock()
	defer f.Unlock()
	f.advance(a.VbID, a.SeqNo)
}

func position(vb uint16, seqno uint64) gocbcore.DcpSeqNoAdvanced {
	return gocbcore.DcpSeqNoAdvanced{VbID: vb, SeqNo: seqno}
}

// behind names a vBucket that is not where it should be.
func (f *follower) behind(targets []gocbcore.VbSeqNoEntry) error {
	f.Lock()
	defer f.Unlock()
	for _, target := range targets {
		if f.seqnos[target.VbID] < uint64(target.SeqNo) {
			return fmt.Errorf("vBucket %d is at %d, not at %d", target.VbID, f.seqnos[target.VbID], target.SeqNo)
		}
	}
	return nil
}

func (f *follower) ended(vbs int) error {
	f.Lock()
	defer f.Unlock()
	if len(f.ends) != vbs {
		return fmt.Errorf("%d of %d streams have ended", len(f.ends), vbs)
	}
	return nil
}

// streamer is a DCP agent on a bucket.
type streamer struct {
	t     *testing.T
	agent *gocbcore.DCPAgent
}

func newStreamer(t *testing.T, bucket string, flags memd.DcpOpenFlag, change func(*gocbcore.DCPConfig)) streamer {
	t.Helper()
	config := gocbcore.DCPAgentConfig{
		BucketName: bucket,
		IoConfig:   gocbcore.IoConfig{UseCollections: true},
		SecurityConfig: gocbcore.SecurityConfig{
			Auth: gocbcore.PasswordAuthProvider{
				Username: os.Getenv("SETTEE_USERNAME"), Password: os.Getenv("SETTEE_PASSWORD"),
			},
		},
		DCPConfig: gocbcore.DCPConfig{BufferSize: 100_000},
	}
	fatal(t, config.FromConnStr("couchbase://"+os.Getenv("SETTEE_ADDRESS")))
	if change != nil {
		change(&config.DCPConfig)
	}
	agent := must[*gocbcore.DCPAgent](t)(gocbcore.CreateDcpAgent(&config, newKey(), memd.DcpOpenFlagProducer|flags))
	t.Cleanup(func() { _ = agent.Close() })
	_, err := await(func(done func(*gocbcore.WaitUntilReadyResult, error)) (gocbcore.PendingOp, error) {
		return agent.WaitUntilReady(time.Now().Add(patience), gocbcore.WaitUntilReadyOptions{}, done)
	})
	fatal(t, err)
	return streamer{t, agent}
}

// seqnos are the high seqnos of all vBuckets.
func (s streamer) seqnos() []gocbcore.VbSeqNoEntry {
	s.t.Helper()
	seqnos, err := await(func(done func([]gocbcore.VbSeqNoEntry, error)) (gocbcore.PendingOp, error) {
		return s.agent.GetVbucketSeqnos(1, memd.VbucketStateActive, gocbcore.GetVbucketSeqnoOptions{}, done)
	})
	fatal(s.t, err)
	return seqnos
}

func (s streamer) open(
	vb uint16, flags memd.DcpStreamAddFlag, uuid gocbcore.VbUUID, start, end gocbcore.SeqNo, to *follower,
	options gocbcore.OpenStreamOptions,
) ([]gocbcore.FailoverEntry, error) {
	return await(func(done func([]gocbcore.FailoverEntry, error)) (gocbcore.PendingOp, error) {
		return s.agent.OpenStream(vb, flags, uuid, start, end, start, start, to, options,
			func(log []gocbcore.FailoverEntry, err error) { done(log, err) })
	})
}

// openAll opens streams from the beginning, of everything or filtered.
func (s streamer) openAll(flags memd.DcpStreamAddFlag, to *follower, options gocbcore.OpenStreamOptions) {
	s.t.Helper()
	for _, entry := range s.seqnos() {
		_, err := s.open(entry.VbID, flags, 0, 0, endless, to, options)
		fatal(s.t, err)
	}
}

// fleet is a bucket of its own with scope s and collections a and b, and what was written to it.
type fleet struct {
	t        *testing.T
	name     string
	bucket   *gocb.Bucket
	expected map[string]version
}

func newFleet(t *testing.T, kind gocb.BucketType) *fleet {
	t.Helper()
	manager := clusters["couchbase"].Buckets()
	name := "s" + newKey()[3:]
	fatal(t, manager.CreateBucket(gocb.CreateBucketSettings{
		BucketSettings: gocb.BucketSettings{Name: name, RAMQuotaMB: 100, BucketType: kind},
	}, nil))
	t.Cleanup(func() { _ = manager.DropBucket(name, nil) })
	bucket := openBucket(t, "couchbase", name)
	collections := bucket.CollectionsV2()
	fatal(t, collections.CreateScope("s", nil))
	for _, each := range []string{"a", "b"} {
		fatal(t, collections.CreateCollection("s", each, nil, nil))
	}
	return &fleet{t, name, bucket, map[string]version{}}
}

func (f *fleet) collection(name string) *gocb.Collection {
	if name == "_default" {
		return f.bucket.DefaultCollection()
	}
	return f.bucket.Scope("s").Collection(name)
}

// write stores documents, overwrites some and deletes some.
func (f *fleet) write(prefix string, count int) {
	f.t.Helper()
	for number := range count {
		name := []string{"_default", "a", "b"}[number%3]
		collection, key := f.collection(name), fmt.Sprintf("%s-%d", prefix, number)
		full := name + "/" + key
		for round := range 1 + number%2 {
			value := fmt.Sprintf(`{"number":%d,"round":%d}`, number, round)
			done := must[*gocb.MutationResult](f.t)(collection.Upsert(key, []byte(value), &gocb.UpsertOptions{
				Transcoder: gocb.NewRawJSONTranscoder(),
			}))
			f.expected[full] = version{cas: uint64(done.Cas()), value: value}
		}
		if number%5 == 0 {
			done := must[*gocb.MutationResult](f.t)(collection.Remove(key, nil))
			f.expected[full] = version{cas: uint64(done.Cas()), deleted: true}
		}
	}
}

// compare holds what was streamed against what was written to some collections.
func (f *fleet) compare(to *follower, collections ...string) {
	f.t.Helper()
	to.Lock()
	defer to.Unlock()
	expected := map[string]version{}
	for name, found := range f.expected {
		for _, collection := range collections {
			if strings.HasPrefix(name, collection+"/") {
				expected[name] = found
			}
		}
	}
	for name, want := range expected {
		if got, found := to.documents[name]; !found || got != want {
			f.t.Fatalf("%s: streamed %+v, written %+v", name, got, want)
		}
	}
	if len(to.documents) != len(expected) {
		f.t.Fatalf("%d documents streamed, %d written", len(to.documents), len(expected))
	}
}

func TestStreamsTellEverything(t *testing.T) {
	for _, kind := range []gocb.BucketType{gocb.CouchbaseBucketType, gocb.EphemeralBucketType} {
		t.Run(string(kind), func(t *testing.T) {
			written := newFleet(t, kind)
			written.write("before", 90)
			source, to := newStreamer(t, written.name, 0, nil), newFollower(t)
			source.openAll(memd.DcpStreamAddFlagActiveOnly, to, gocbcore.OpenStreamOptions{})
			written.write("during", 90)
			eventually(t, func() error { return to.behind(source.seqnos()) })
			written.compare(to, "_default", "a", "b")
			// Every stream is closed, and says so.
			for _, entry := range source.seqnos() {
				_, err := await(func(done func(struct{}, error)) (gocbcore.PendingOp, error) {
					return source.agent.CloseStream(entry.VbID, gocbcore.CloseStreamOptions{},
						func(err error) { done(struct{}{}, err) })
				})
				fatal(t, err)
			}
			eventually(t, func() error { return to.ended(len(source.seqnos())) })
			for vb, err := range to.ends {
				if !errors.Is(err, gocbcore.ErrDCPStreamClosed) {
					t.Fatalf("vBucket %d ended with %v", vb, err)
				}
			}
		})
	}
}

func TestStreamsUnordered(t *testing.T) {
	written := newFleet(t, gocb.CouchbaseBucketType)
	written.write("oso", 150)
	id := collectionID(t, written, "a")
	source := newStreamer(t, written.name, 0, func(config *gocbcore.DCPConfig) {
		config.UseOSOBackfill = true
		config.BackfillOrder = gocbcore.DCPBackfillOrderSequential
	})
	to := newFollower(t)
	// What memory still has is told in order: wait until it is on disk only.
	time.Sleep(500 * time.Millisecond)
	options := gocbcore.OpenStreamOptions{FilterOptions: &gocbcore.OpenStreamFilterOptions{CollectionIDs: []uint32{id}}}
	source.openAll(memd.DcpStreamAddFlagLatest, to, options)
	eventually(t, func() error { return to.ended(len(source.seqnos())) })
	for vb, err := range to.ends {
		if err != nil {
			t.Fatalf("vBucket %d ended with %v", vb, err)
		}
	}
	written.compare(to, "a")
	if to.unordered == 0 || to.unordered%2 != 0 {
		t.Fatalf("%d marks of unordered snapshots", to.unordered)
	}
}

func TestStreamsWithIDs(t *testing.T) {
	written := newFleet(t, gocb.CouchbaseBucketType)
	written.write("ids", 90)
	source := newStreamer(t, written.name, 0, func(config *gocbcore.DCPConfig) { config.UseStreamID = true })
	to := newFollower(t)
	for number, name := range []string{"a", "b"} {
		source.openAll(0, to, gocbcore.OpenStreamOptions{
			FilterOptions: &gocbcore.OpenStreamFilterOptions{CollectionIDs: []uint32{collectionID(t, written, name)}},
			StreamOptions: &gocbcore.OpenStreamStreamOptions{StreamID: uint16(number + 1)},
		})
	}
	missing := func() error {
		to.Lock()
		defer to.Unlock()
		for name := range written.expected {
			for number, collection := range []string{"a", "b"} {
				if strings.HasPrefix(name, collection+"/") && !to.byStream[uint16(number+1)][name] {
					return fmt.Errorf("%s has not come on stream %d", name, number+1)
				}
			}
		}
		return nil
	}
	eventually(t, missing)
	written.compare(to, "a", "b")
	// Dropping the only collection of a stream ends it.
	fatal(t, written.bucket.CollectionsV2().DropCollection("s", "a", nil))
	eventually(t, func() error { return to.ended(len(source.seqnos())) })
	for vb, err := range to.ends {
		if !errors.Is(err, gocbcore.ErrDCPStreamFilterEmpty) {
			t.Fatalf("vBucket %d ended with %v", vb, err)
		}
	}
}

func TestStreamsTellExpiry(t *testing.T) {
	written := newFleet(t, gocb.CouchbaseBucketType)
	source := newStreamer(t, written.name, memd.DcpOpenFlagIncludeDeleteTimes, func(config *gocbcore.DCPConfig) {
		config.UseExpiryOpcode = true
	})
	to := newFollower(t)
	source.openAll(0, to, gocbcore.OpenStreamOptions{})
	_, err := written.bucket.DefaultCollection().Upsert("mayfly", "x", &gocb.UpsertOptions{Expiry: time.Second})
	fatal(t, err)
	eventually(t, func() error {
		to.Lock()
		defer to.Unlock()
		if !to.documents["_default/mayfly"].expired {
			return errors.New("it has not expired")
		}
		return nil
	})
}

func TestStreamsRollBack(t *testing.T) {
	written := newFleet(t, gocb.CouchbaseBucketType)
	written.write("rollback", 30)
	source, to := newStreamer(t, written.name, 0, nil), newFollower(t)
	for _, entry := range source.seqnos() {
		_, err := source.open(entry.VbID, 0, 4711, entry.SeqNo, endless, to, gocbcore.OpenStreamOptions{})
		var back gocbcore.DCPRollbackError
		if !errors.As(err, &back) || back.SeqNo != 0 {
			t.Fatalf("vBucket %d: %v", entry.VbID, err)
		}
		log, err := source.open(entry.VbID, 0, 0, 0, endless, to, gocbcore.OpenStreamOptions{})
		fatal(t, err)
		if len(log) != 1 || log[0].SeqNo != 0 {
			t.Fatalf("vBucket %d: failover log %v", entry.VbID, log)
		}
	}
	eventually(t, func() error { return to.behind(source.seqnos()) })
	written.compare(to, "_default", "a", "b")
}

// collectionID asks the server, as connectors do.
func collectionID(t *testing.T, of *fleet, name string) uint32 {
	t.Helper()
	s := newSide(t, of.name, 0)
	found, err := await(func(done func(*gocbcore.GetCollectionIDResult, error)) (gocbcore.PendingOp, error) {
		return s.agent.GetCollectionID("s", name, gocbcore.GetCollectionIDOptions{}, done)
	})
	fatal(t, err)
	return found.CollectionID
}
