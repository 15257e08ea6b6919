package compat

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"
)

const (
	// viewedAddress is that of the server that is killed; the one of the suite goes on.
	viewedAddress = "127.0.31.26"
	viewed        = 120
)

// songViews is a design document whose views have the documents of one prefix, by the number in them.
func songViews(prefix string) gocb.DesignDocument {
	emit := "function (doc, meta) { if (meta.id.indexOf('" + prefix + "') == 0) emit([doc.year % 3, doc.year], doc.year); }"
	return gocb.DesignDocument{Name: prefix, Views: map[string]gocb.View{
		"rows":  {Map: emit},
		"count": {Map: emit, Reduce: "_count"},
		"stats": {Map: emit, Reduce: "_stats"},
	}}
}

// viewRow is a row of these views; the id is empty where it is reduced.
type viewRow struct {
	ID    string
	Key   []int
	Value any
}

func view(t *testing.T, bucket *gocb.Bucket, name, view string, options gocb.ViewOptions) ([]viewRow, uint64) {
	t.Helper()
	options.Timeout, options.Namespace = patience, gocb.DesignDocumentNamespaceProduction
	if options.ScanConsistency == 0 {
		options.ScanConsistency = gocb.ViewScanConsistencyRequestPlus
	}
	result := must[*gocb.ViewResult](t)(bucket.ViewQuery(name, view, &options))
	var rows []viewRow
	for result.Next() {
		given := result.Row()
		row := viewRow{ID: given.ID}
		if row.ID != "" || options.Group || options.GroupLevel > 0 {
			fatal(t, given.Key(&row.Key))
		}
		fatal(t, given.Value(&row.Value))
		rows = append(rows, row)
	}
	fatal(t, result.Err())
	return rows, must[*gocb.ViewMetaData](t)(result.MetaData()).TotalRows
}

// makeSongs stores documents and their views, and gives the prefix of both.
func makeSongs(t *testing.T, bucket *gocb.Bucket) string {
	t.Helper()
	prefix := newKey()
	for n := range viewed {
		_, err := bucket.DefaultCollection().Upsert(fmt.Sprintf("%s-%03d", prefix, n), document{"song", n}, nil)
		fatal(t, err)
	}
	fatal(t, bucket.ViewIndexes().UpsertDesignDocument(songViews(prefix), gocb.DesignDocumentNamespaceDevelopment, nil))
	fatal(t, bucket.ViewIndexes().PublishDesignDocument(prefix, nil))
	t.Cleanup(func() {
		for _, space := range []gocb.DesignDocumentNamespace{gocb.DesignDocumentNamespaceDevelopment, gocb.DesignDocumentNamespaceProduction} {
			_ = bucket.ViewIndexes().DropDesignDocument(prefix, space, nil)
		}
	})
	return prefix
}

func TestViewsTellRowsRangesAndReductions(t *testing.T) {
	for _, scheme := range []string{"couchbase", "couchbases"} {
		t.Run(scheme, func(t *testing.T) {
			bucket := openBucket(t, scheme, "main")
			prefix := makeSongs(t, bucket)
			rows, total := view(t, bucket, prefix, "rows", gocb.ViewOptions{})
			equal(t, len(rows), viewed)
			equal(t, total, uint64(viewed))
			equal(t, fmt.Sprint(rows[0]), fmt.Sprint(viewRow{prefix + "-000", []int{0, 0}, 0}))
			equal(t, fmt.Sprint(rows[viewed-1].Key), fmt.Sprint([]int{2, viewed - 1}))

			rows, _ = view(t, bucket, prefix, "rows", gocb.ViewOptions{
				StartKey: []int{1, 10}, EndKey: []int{1, 19}, InclusiveEnd: true, Order: gocb.ViewOrderingAscending,
			})
			equal(t, fmt.Sprint(rows[0].Key, rows[len(rows)-1].Key, len(rows)), "[1 10] [1 19] 4")
			rows, _ = view(t, bucket, prefix, "rows", gocb.ViewOptions{Order: gocb.ViewOrderingDescending, Limit: 1, Skip: 1})
			equal(t, fmt.Sprint(rows[0].Key), fmt.Sprint([]int{2, viewed - 4}))
			rows, _ = view(t, bucket, prefix, "rows", gocb.ViewOptions{Keys: []any{[]int{2, 5}, []int{0, 3}, []int{0, 4}}})
			equal(t, fmt.Sprint(len(rows), rows[0].Key, rows[1].Key), "2 [2 5] [0 3]")

			rows, _ = view(t, bucket, prefix, "count", gocb.ViewOptions{Reduce: true})
			equal(t, fmt.Sprint(rows), fmt.Sprint([]viewRow{{Value: viewed}}))
			rows, _ = view(t, bucket, prefix, "stats", gocb.ViewOptions{Reduce: true, GroupLevel: 1})
			equal(t, len(rows), 3)
			sum := rows[1].Value.(map[string]any)
			equal(t, fmt.Sprint(sum["count"], sum["min"], sum["max"]), "40 1 118")
		})
	}
}

func TestViewsTellWhatWasWrittenBeforeTheQuery(t *testing.T) {
	bucket := openBucket(t, "couchbase", "main")
	prefix := makeSongs(t, bucket)
	for n := range 20 {
		id := fmt.Sprintf("%s-%03d", prefix, n)
		_, err := bucket.DefaultCollection().Upsert(id, document{"changed", 1000 + n}, nil)
		fatal(t, err)
		rows, _ := view(t, bucket, prefix, "rows", gocb.ViewOptions{Key: []int{(1000 + n) % 3, 1000 + n}})
		equal(t, len(rows), 1)
		equal(t, rows[0].ID, id)
		_, err = bucket.DefaultCollection().Remove(id, nil)
		fatal(t, err)
		_, total := view(t, bucket, prefix, "rows", gocb.ViewOptions{Limit: 1})
		equal(t, total, uint64(viewed-n-1))
	}
}

// Pages by key and id of the row that follows: every row comes once.
func TestViewsArePagedThrough(t *testing.T) {
	bucket := openBucket(t, "couchbase", "main")
	prefix := makeSongs(t, bucket)
	const page = 7
	var seen []string
	options := gocb.ViewOptions{Limit: page + 1}
	for {
		rows, _ := view(t, bucket, prefix, "rows", options)
		for _, row := range rows[:min(page, len(rows))] {
			seen = append(seen, row.ID)
		}
		if len(rows) <= page {
			break
		}
		options.StartKey, options.StartKeyDocID = rows[page].Key, rows[page].ID
	}
	equal(t, len(seen), viewed)
}

func TestViewsRefuseWhatIsWrongInWordsThatClientsKnow(t *testing.T) {
	bucket := openBucket(t, "couchbase", "main")
	prefix := makeSongs(t, bucket)
	short := gocb.ViewOptions{Timeout: patience, Namespace: gocb.DesignDocumentNamespaceProduction}
	_, err := bucket.ViewQuery(prefix, "none", &short)
	wantError(t, err, gocb.ErrViewNotFound)
	_, err = bucket.ViewQuery("none", "rows", &short)
	wantError(t, err, gocb.ErrViewNotFound)
	broken := gocb.DesignDocument{Name: prefix + "x", Views: map[string]gocb.View{"v": {Map: "function ("}}}
	err = bucket.ViewIndexes().UpsertDesignDocument(broken, gocb.DesignDocumentNamespaceProduction, nil)
	if err == nil || !strings.Contains(err.Error(), "invalid_design_document") {
		t.Fatalf("a function that does not compile: %v", err)
	}
}

// What was acknowledged as durable before the kill is in the answers after it.
func TestViewsOutliveAKill(t *testing.T) {
	node := startNode(t, viewedAddress, "go-views")
	cluster := must[*gocb.Cluster](t)(gocb.Connect("couchbase://"+viewedAddress, gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{
			Username: os.Getenv("SETTEE_USERNAME"), Password: os.Getenv("SETTEE_PASSWORD"),
		},
		TimeoutsConfig: gocb.TimeoutsConfig{KVTimeout: patience, KVDurableTimeout: patience},
	}))
	defer func() { _ = cluster.Close(nil) }()
	bucket := cluster.Bucket("main")
	fatal(t, bucket.WaitUntilReady(patience, nil))
	prefix := makeSongs(t, bucket)
	durable := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}
	_, err := bucket.DefaultCollection().Upsert(prefix+"-kept", document{"kept", 3000}, durable)
	fatal(t, err)
	view(t, bucket, prefix, "count", gocb.ViewOptions{Reduce: true})
	equal(t, node.tell("kill"), "up")
	fatal(t, bucket.WaitUntilReady(patience, nil))
	rows, total := view(t, bucket, prefix, "rows", gocb.ViewOptions{Key: []int{0, 3000}})
	equal(t, len(rows), 1)
	counted, _ := view(t, bucket, prefix, "count", gocb.ViewOptions{Reduce: true})
	equal(t, fmt.Sprint(counted[0].Value), fmt.Sprint(total))
}
