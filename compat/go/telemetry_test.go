package compat

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// rest sends a request to the management port and returns the body of a 200.
func rest(t *testing.T, method, path string, form url.Values) string {
	t.Helper()
	address := "http://" + os.Getenv("SETTEE_ADDRESS") + ":8091" + path
	request := must[*http.Request](t)(http.NewRequest(method, address, strings.NewReader(form.Encode())))
	request.SetBasicAuth(os.Getenv("SETTEE_USERNAME"), os.Getenv("SETTEE_PASSWORD"))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response := must[*http.Response](t)(http.DefaultClient.Do(request))
	defer response.Body.Close()
	body := string(must[[]byte](t)(io.ReadAll(response.Body)))
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, body)
	}
	return body
}

// series gives the sum of all series of a name that have a label.
func series(metrics, name, label string) (sum float64) {
	line := regexp.MustCompile(`(?m)^` + name + `\{([^}]*)\} (\S+)$`)
	for _, found := range line.FindAllStringSubmatch(metrics, -1) {
		if strings.Contains(found[1], label) {
			value, _ := strconv.ParseFloat(found[2], 64)
			sum += value
		}
	}
	return sum
}

// The SDK is asked by the node how long its operations took, once a minute: the shortest interval there is.
func TestTheSDKTellsWhatItSeesAndObjectivesAreJudgedByIt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	const objective = "/settee/slo/main/telemetry"
	rest(t, http.MethodPut, objective, url.Values{"operation": {"get"}, "latencyUs": {"500000"}, "targetPercent": {"50"}})
	rest(t, http.MethodPost, "/settings/appTelemetry", url.Values{"enabled": {"true"}})
	t.Cleanup(func() {
		rest(t, http.MethodDelete, objective, nil)
		rest(t, http.MethodPost, "/settings/appTelemetry", url.Values{"enabled": {"false"}})
	})
	cluster := must[*gocb.Cluster](t)(connect("couchbase", os.Getenv("SETTEE_USERNAME"), os.Getenv("SETTEE_PASSWORD")))
	t.Cleanup(func() { _ = cluster.Close(nil) })
	collection := cluster.Bucket("main").DefaultCollection()
	fatal(t, cluster.Bucket("main").WaitUntilReady(patience, nil))
	key, reads := newKey(), 20
	_ = must[*gocb.MutationResult](t)(collection.Upsert(key, "value", nil))
	for range reads {
		_ = must[*gocb.GetResult](t)(collection.Get(key, nil))
	}
	var metrics string
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		metrics = rest(t, http.MethodGet, "/metrics", nil)
		if series(metrics, "sdk_kv_retrieval_duration_milliseconds_count", `bucket="main"`) >= float64(reads) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the SDK has told nothing:\n%s", metrics)
		}
	}
	labels := fmt.Sprintf(`bucket="main",node="%s`, os.Getenv("SETTEE_ADDRESS"))
	for name, least := range map[string]float64{
		"sdk_kv_retrieval_duration_milliseconds_count":           float64(reads),
		"sdk_kv_retrieval_duration_milliseconds_bucket":          float64(reads),
		"sdk_kv_mutation_nondurable_duration_milliseconds_count": 1,
		"sdk_kv_r_total": float64(reads) + 1,
	} {
		if found := series(metrics, name, labels); found < least {
			t.Errorf("%s: %v, not %v\n%s", name, found, least, metrics)
		}
	}
	if !strings.Contains(metrics, "\nsdk_invalid_metric_total 0\n") {
		t.Errorf("some of what the SDK tells is not understood:\n%s", metrics)
	}
	var shown struct {
		SeenFromOutside struct {
			SDK struct {
				GoodWithinUs uint64
				Events       struct{ Good, Total uint64 }
			}
		}
	}
	fatal(t, json.Unmarshal([]byte(rest(t, http.MethodGet, objective, nil)), &shown))
	sdk := shown.SeenFromOutside.SDK
	if sdk.Events.Total < uint64(reads) || sdk.Events.Good == 0 || sdk.GoodWithinUs != 500000 {
		t.Errorf("the objective is judged by %+v", sdk)
	}
}
