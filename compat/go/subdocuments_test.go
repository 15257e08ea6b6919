package compat

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

type song struct {
	Title string   `json:"title"`
	Year  int      `json:"year"`
	By    []string `json:"by"`
}

var march = song{"Águas de Março", 1972, []string{"Elis", "Tom"}}

var (
	inXattr        = &gocb.GetSpecOptions{IsXattr: true}
	upsertXattr    = &gocb.UpsertSpecOptions{IsXattr: true, CreatePath: true}
	createIfAbsent = &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsUpsert}
)

// at decodes what a lookup found; its error otherwise.
func at[T any](result *gocb.LookupInResult, index uint) (value T, err error) {
	err = result.ContentAt(index, &value)
	return value, err
}

func lookup(t *testing.T, collection *gocb.Collection, key string, specs ...gocb.LookupInSpec) *gocb.LookupInResult {
	t.Helper()
	return must[*gocb.LookupInResult](t)(collection.LookupIn(key, specs, nil))
}

func whole(t *testing.T, collection *gocb.Collection, key string) (read map[string]any) {
	t.Helper()
	result := must[*gocb.GetResult](t)(collection.Get(key, nil))
	if err := result.Content(&read); err != nil {
		t.Fatal(err)
	}
	return read
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestSubdocLookups(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		must[*gocb.MutationResult](t)(collection.Upsert(key, march, nil))
		result := lookup(t, collection, key,
			gocb.GetSpec("by[-1]", nil), gocb.ExistsSpec("year", nil), gocb.CountSpec("by", nil), gocb.GetSpec("", nil),
			gocb.GetSpec("none", nil), gocb.GetSpec("year.x", nil), gocb.GetSpec("by[", nil))
		equal(t, must[string](t)(at[string](result, 0)), "Tom")
		equal(t, []bool{result.Exists(1), result.Exists(4)}, []bool{true, false})
		equal(t, must[int](t)(at[int](result, 2)), 2)
		equal(t, must[song](t)(at[song](result, 3)), march)
		for index, want := range map[uint]error{
			4: gocb.ErrPathNotFound, 5: gocb.ErrPathMismatch, 6: gocb.ErrPathInvalid,
		} {
			_, err := at[string](result, index)
			wantError(t, err, want)
		}
		_, err := collection.LookupIn(key+"-none", []gocb.LookupInSpec{gocb.GetSpec("a", nil)}, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
	})
}

func TestSubdocMutations(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		must[*gocb.MutationResult](t)(collection.Upsert(key, march, nil))
		result := must[*gocb.MutateInResult](t)(collection.MutateIn(key, []gocb.MutateInSpec{
			gocb.InsertSpec("label.name", "Philips", &gocb.InsertSpecOptions{CreatePath: true}),
			gocb.UpsertSpec("year", 1974, nil),
			gocb.ReplaceSpec("title", "Waters of March", nil),
			gocb.RemoveSpec("by[0]", nil),
			gocb.ArrayAppendSpec("by", []string{"and", "others"}, &gocb.ArrayAppendSpecOptions{HasMultiple: true}),
			gocb.ArrayPrependSpec("by", "first", nil),
			gocb.ArrayInsertSpec("by[1]", "second", nil),
			gocb.ArrayAddUniqueSpec("by", "last", nil),
			gocb.IncrementSpec("plays", 43, nil),
			gocb.DecrementSpec("plays", 1, nil),
		}, nil))
		var plays int
		if err := result.ContentAt(9, &plays); err != nil || plays != 42 {
			t.Fatalf("%v, %d plays", err, plays)
		}
		equal(t, whole(t, collection, key), map[string]any{
			"title": "Waters of March", "year": 1974.0, "plays": 42.0, "label": map[string]any{"name": "Philips"},
			"by": []any{"first", "second", "Tom", "and", "others", "last"},
		})
		if token := result.MutationToken(); token == nil || token.SequenceNumber() == 0 {
			t.Fatal("no mutation token")
		}
	})
}

func TestSubdocFailuresUndoEverything(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		must[*gocb.MutationResult](t)(collection.Upsert(key, march, nil))
		for _, each := range []struct {
			spec gocb.MutateInSpec
			want error
		}{
			{gocb.InsertSpec("title", 1, nil), gocb.ErrPathExists},
			{gocb.UpsertSpec("a.b", 1, nil), gocb.ErrPathNotFound},
			{gocb.RemoveSpec("none", nil), gocb.ErrPathNotFound},
			{gocb.ArrayAppendSpec("title", 1, nil), gocb.ErrPathMismatch},
			{gocb.ArrayAddUniqueSpec("by", "Tom", nil), gocb.ErrPathExists},
			{gocb.IncrementSpec("title", 1, nil), gocb.ErrPathMismatch},
			{gocb.IncrementSpec("year", 0, nil), gocb.ErrDeltaInvalid},
		} {
			_, err := collection.MutateIn(key, []gocb.MutateInSpec{gocb.UpsertSpec("year", 0, nil), each.spec}, nil)
			wantError(t, err, each.want)
		}
		equal(t, must[song](t)(at[song](lookup(t, collection, key, gocb.GetSpec("", nil)), 0)), march)
	})
}

func TestSubdocCreatesDocuments(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		specs := []gocb.MutateInSpec{gocb.UpsertSpec("a.b", 1, &gocb.UpsertSpecOptions{CreatePath: true})}
		_, err := collection.MutateIn(key, specs, nil)
		wantError(t, err, gocb.ErrDocumentNotFound)
		insert := &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsInsert, Expiry: time.Hour}
		must[*gocb.MutateInResult](t)(collection.MutateIn(key, specs, insert))
		_, err = collection.MutateIn(key, specs, insert)
		wantError(t, err, gocb.ErrDocumentExists)
		result := must[*gocb.MutateInResult](t)(collection.MutateIn(key, specs, createIfAbsent))
		equal(t, whole(t, collection, key), map[string]any{"a": map[string]any{"b": 1.0}})
		_, err = collection.MutateIn(key, specs, &gocb.MutateInOptions{Cas: result.Cas() - 1})
		wantError(t, err, gocb.ErrCasMismatch, gocb.ErrDocumentExists)
		must[*gocb.MutateInResult](t)(collection.MutateIn(key, specs, &gocb.MutateInOptions{Cas: result.Cas()}))
	})
}

func TestGetWithExpiryAndProjection(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		must[*gocb.MutationResult](t)(collection.Upsert(key, march, &gocb.UpsertOptions{Expiry: time.Hour}))
		options := &gocb.GetOptions{WithExpiry: true, Project: []string{"title", "by[0]"}}
		result := must[*gocb.GetResult](t)(collection.Get(key, options))
		if left := time.Until(result.ExpiryTime()); left < 59*time.Minute || left > 61*time.Minute {
			t.Fatalf("expires in %v", left)
		}
		var read song
		if err := result.Content(&read); err != nil {
			t.Fatal(err)
		}
		equal(t, read, song{march.Title, 0, []string{"Elis"}})
		specs := []gocb.MutateInSpec{gocb.UpsertSpec("year", 1, nil)}
		keep := &gocb.MutateInOptions{PreserveExpiry: true}
		must[*gocb.MutateInResult](t)(collection.MutateIn(key, specs, keep))
		kept := must[*gocb.GetResult](t)(collection.Get(key, options))
		equal(t, kept.ExpiryTime().Unix(), result.ExpiryTime().Unix())
		must[*gocb.MutateInResult](t)(collection.MutateIn(key, specs, nil))
		gone := must[*gocb.GetResult](t)(collection.Get(key, options))
		if expiry := gone.ExpiryTime(); expiry.Unix() > 0 {
			t.Fatalf("expires at %v", expiry)
		}
	})
}

func TestExtendedAttributes(t *testing.T) {
	everywhere(t, func(t *testing.T, collection *gocb.Collection, key string) {
		must[*gocb.MutationResult](t)(collection.Upsert(key, march, nil))
		result := must[*gocb.MutateInResult](t)(collection.MutateIn(key, []gocb.MutateInSpec{
			gocb.UpsertSpec("user.deep", 1, upsertXattr),
			gocb.UpsertSpec("_system", "kept", upsertXattr),
			gocb.UpsertSpec("macros.cas", gocb.MutationMacroCAS, upsertXattr),
			gocb.UpsertSpec("macros.seqno", gocb.MutationMacroSeqNo, upsertXattr),
			gocb.UpsertSpec("macros.crc", gocb.MutationMacroValueCRC32c, upsertXattr),
			gocb.UpsertSpec("year", 1973, nil),
		}, nil))
		read := lookup(t, collection, key,
			gocb.GetSpec("user.deep", inXattr), gocb.GetSpec("macros", inXattr), gocb.GetSpec("$document", inXattr),
			gocb.GetSpec("$XTOC", inXattr), gocb.GetSpec("year", nil))
		equal(t, must[int](t)(at[int](read, 0)), 1)
		macros := must[map[string]string](t)(at[map[string]string](read, 1))
		about := must[map[string]any](t)(at[map[string]any](read, 2))
		equal(t, about["CAS"], fmt.Sprintf("0x%016x", uint64(result.Cas())))
		equal(t, about["seqno"], macros["seqno"])
		equal(t, about["value_crc32c"], macros["crc"])
		var swapped uint64
		for shift := 0; shift < 64; shift += 8 {
			swapped = swapped<<8 | uint64(result.Cas())>>shift&0xff
		}
		equal(t, macros["cas"], fmt.Sprintf("0x%016x", swapped))
		equal(t, must[[]string](t)(at[[]string](read, 3)), []string{"user", "_system", "macros"})
		equal(t, must[int](t)(at[int](read, 4)), 1973)

		must[*gocb.MutationResult](t)(collection.Remove(key, nil))
		deleted := &gocb.LookupInOptions{}
		deleted.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted
		specs := []gocb.LookupInSpec{gocb.GetSpec("_system", inXattr), gocb.GetSpec("user", inXattr)}
		tombstone := must[*gocb.LookupInResult](t)(collection.LookupIn(key, specs, deleted))
		equal(t, must[string](t)(at[string](tombstone, 0)), "kept")
		_, err := at[int](tombstone, 1)
		wantError(t, err, gocb.ErrPathNotFound)
	})
}

func TestReplicasAreTheActiveAlone(t *testing.T) {
	collection := openBucket(t, "couchbase", "main").DefaultCollection()
	key := newKey()
	must[*gocb.MutationResult](t)(collection.Upsert(key, march, nil))
	specs := []gocb.LookupInSpec{gocb.GetSpec("year", nil)}
	read := must[*gocb.LookupInReplicaResult](t)(collection.LookupInAnyReplica(key, specs, nil))
	var year int
	if err := read.ContentAt(0, &year); err != nil || year != 1972 || read.IsReplica() {
		t.Fatalf("%v, %d, replica: %v", err, year, read.IsReplica())
	}
	all := must[*gocb.LookupInAllReplicasResult](t)(collection.LookupInAllReplicas(key, specs, nil))
	count := 0
	for all.Next() != nil {
		count++
	}
	equal(t, count, 1)
}
