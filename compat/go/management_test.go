package compat

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

func eventually(t *testing.T, action func() error) {
	t.Helper()
	var err error
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if err = action(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCollections(t *testing.T) {
	for _, scheme := range []string{"couchbase", "couchbases"} {
		bucket := openBucket(t, scheme, "main")
		manager := bucket.CollectionsV2()
		scope, key := "s"+newKey()[3:], newKey()
		fatal(t, manager.CreateScope(scope, nil))
		wantError(t, manager.CreateScope(scope, nil), gocb.ErrScopeExists)
		fatal(t, manager.CreateCollection(scope, "songs", nil, nil))
		fatal(t, manager.CreateCollection(scope, "brief", &gocb.CreateCollectionSettings{MaxExpiry: time.Second}, nil))
		wantError(t, manager.CreateCollection(scope, "songs", nil, nil), gocb.ErrCollectionExists)
		wantError(t, manager.CreateCollection("nowhere", "songs", nil, nil), gocb.ErrScopeNotFound)
		wantError(t, manager.DropCollection(scope, "missing", nil), gocb.ErrCollectionNotFound)

		songs, brief := bucket.Scope(scope).Collection("songs"), bucket.Scope(scope).Collection("brief")
		eventually(t, func() error { _, err := songs.Upsert(key, document{"song", 1}, nil); return err })
		eventually(t, func() error { _, err := brief.Upsert(key, document{"brief", 1}, nil); return err })
		must[*gocb.MutationResult](t)(bucket.DefaultCollection().Upsert(key, document{"default", 1}, nil))
		if got := content(t, songs, key); got.Title != "song" {
			t.Fatalf("read %v", got)
		}
		longest := strings.Repeat("k", 246)
		must[*gocb.MutationResult](t)(songs.Upsert(longest, 1, nil))
		must[*gocb.GetResult](t)(songs.Get(longest, nil))
		goneWithin(t, brief, key, 5*time.Second)

		found := map[string]bool{}
		for _, each := range must[[]gocb.ScopeSpec](t)(manager.GetAllScopes(nil)) {
			if each.Name == scope {
				for _, collection := range each.Collections {
					found[collection.Name] = true
				}
			}
		}
		if !found["songs"] || !found["brief"] {
			t.Fatalf("listed %v", found)
		}
		fatal(t, manager.DropCollection(scope, "songs", nil))
		_, err := songs.Get(key, &gocb.GetOptions{Timeout: 700 * time.Millisecond})
		wantError(t, err, gocb.ErrTimeout, gocb.ErrCollectionNotFound)
		fatal(t, manager.DropScope(scope, nil))
		wantError(t, manager.DropScope(scope, nil), gocb.ErrScopeNotFound)
		must[*gocb.GetResult](t)(bucket.DefaultCollection().Get(key, nil))
	}
}

func TestUnknownCollectionEndsInTime(t *testing.T) {
	missing := openBucket(t, "couchbase", "main").Scope("_default").Collection("missing")
	began := time.Now()
	_, err := missing.Get("k", &gocb.GetOptions{Timeout: 700 * time.Millisecond})
	wantError(t, err, gocb.ErrTimeout, gocb.ErrCollectionNotFound)
	if took := time.Since(began); took > 5*time.Second {
		t.Fatalf("took %v", took)
	}
}

func TestBuckets(t *testing.T) {
	cluster := clusters["couchbase"]
	manager, name, key := cluster.Buckets(), "b"+newKey()[3:], newKey()
	settings := gocb.BucketSettings{Name: name, RAMQuotaMB: 100, BucketType: gocb.CouchbaseBucketType, FlushEnabled: true}
	create := gocb.CreateBucketSettings{BucketSettings: settings, ConflictResolutionType: gocb.ConflictResolutionTypeTimestamp}
	fatal(t, manager.CreateBucket(create, nil))
	defer func() { _ = manager.DropBucket(name, nil) }()
	wantError(t, manager.CreateBucket(create, nil), gocb.ErrBucketExists)
	found := must[*gocb.BucketSettings](t)(manager.GetBucket(name, nil))
	if found.RAMQuotaMB != 100 || !found.FlushEnabled || found.BucketType != gocb.CouchbaseBucketType || found.NumReplicas != 0 {
		t.Fatalf("%+v", found)
	}
	if _, listed := must[map[string]gocb.BucketSettings](t)(manager.GetAllBuckets(nil))[name]; !listed {
		t.Fatal("not listed")
	}
	bucket := cluster.Bucket(name)
	fatal(t, bucket.WaitUntilReady(patience, nil))
	must[*gocb.MutationResult](t)(bucket.DefaultCollection().Upsert(key, 1, nil))
	fatal(t, manager.FlushBucket(name, nil))
	_, err := bucket.DefaultCollection().Get(key, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	settings.FlushEnabled, settings.RAMQuotaMB = false, 128
	fatal(t, manager.UpdateBucket(settings, nil))
	wantError(t, manager.FlushBucket(name, nil), gocb.ErrBucketNotFlushable)
	fatal(t, manager.DropBucket(name, nil))
	_, err = manager.GetBucket(name, nil)
	wantError(t, err, gocb.ErrBucketNotFound)
}

func TestUsersAndGroups(t *testing.T) {
	users := clusters["couchbase"].Users()
	name, group, key := "u"+newKey()[3:], "g"+newKey()[3:], newKey()
	fatal(t, users.UpsertGroup(gocb.Group{
		Name: group, Description: "Readers", Roles: []gocb.Role{{Name: "data_reader", Bucket: "main"}},
	}, nil))
	fatal(t, users.UpsertUser(gocb.User{Username: name, DisplayName: "A reader", Password: "reader-pass", Groups: []string{group}}, nil))
	found := must[*gocb.UserAndMetadata](t)(users.GetUser(name, nil))
	if found.DisplayName != "A reader" || len(found.EffectiveRoles) != 1 || found.EffectiveRoles[0].Name != "data_reader" {
		t.Fatalf("%+v", found)
	}
	must[*gocb.MutationResult](t)(openBucket(t, "couchbase", "main").DefaultCollection().Upsert(key, document{"one", 1}, nil))
	client, err := connect("couchbase", name, "reader-pass")
	fatal(t, err)
	defer func() { _ = client.Close(nil) }()
	bucket := client.Bucket("main")
	fatal(t, bucket.WaitUntilReady(patience, &gocb.WaitUntilReadyOptions{ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue}}))
	if got := content(t, bucket.DefaultCollection(), key); got.Year != 1 {
		t.Fatalf("read %v", got)
	}
	if _, err = bucket.DefaultCollection().Upsert(key, document{}, nil); err == nil {
		t.Fatal("a reader wrote")
	}
	fatal(t, users.DropUser(name, nil))
	fatal(t, users.DropGroup(group, nil))
	_, err = users.GetUser(name, nil)
	wantError(t, err, gocb.ErrUserNotFound)
	wantError(t, users.DropUser(name, nil), gocb.ErrUserNotFound)
	_, err = users.GetGroup(group, nil)
	wantError(t, err, gocb.ErrGroupNotFound)
	if len(must[[]gocb.RoleAndDescription](t)(users.GetRoles(nil))) < 5 {
		t.Fatal("hardly any roles")
	}
}

func TestStrangersStayOut(t *testing.T) {
	cluster, err := gocb.Connect("couchbase://"+os.Getenv("SETTEE_ADDRESS"), gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: "nobody", Password: "wrong"},
	})
	fatal(t, err)
	defer func() { _ = cluster.Close(nil) }()
	err = cluster.Bucket("main").WaitUntilReady(time.Second, &gocb.WaitUntilReadyOptions{ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue}})
	if err == nil || errors.Is(err, gocb.ErrBucketNotFound) {
		t.Fatalf("got %v", err)
	}
}

func TestPingAndDiagnostics(t *testing.T) {
	for _, scheme := range []string{"couchbase", "couchbases"} {
		// A client of its own: the shared one still remembers buckets that are gone.
		cluster := must[*gocb.Cluster](t)(connect(scheme, os.Getenv("SETTEE_USERNAME"), os.Getenv("SETTEE_PASSWORD")))
		defer func() { _ = cluster.Close(nil) }()
		bucket := cluster.Bucket("main")
		fatal(t, bucket.WaitUntilReady(patience, nil))
		report := must[*gocb.PingResult](t)(bucket.Ping(&gocb.PingOptions{
			ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue, gocb.ServiceTypeManagement},
		}))
		for _, service := range []gocb.ServiceType{gocb.ServiceTypeKeyValue, gocb.ServiceTypeManagement} {
			if len(report.Services[service]) == 0 {
				t.Fatalf("service %d was not pinged", service)
			}
			for _, endpoint := range report.Services[service] {
				if endpoint.State != gocb.PingStateOk {
					t.Fatalf("%+v", endpoint)
				}
			}
		}
		diagnostics := must[*gocb.DiagnosticsResult](t)(cluster.Diagnostics(nil))
		if diagnostics.State != gocb.ClusterStateOnline {
			t.Fatalf("state %v", diagnostics.State)
		}
	}
}
