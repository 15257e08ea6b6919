// Package compat runs the official Go SDK against a server; compat/run starts it and says where it is.
package compat

import (
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

const patience = 10 * time.Second

var clusters = map[string]*gocb.Cluster{}

// connect gives a ready client; scheme is couchbase or couchbases.
func connect(scheme, username, password string) (*gocb.Cluster, error) {
	options := gocb.ClusterOptions{
		Authenticator: gocb.PasswordAuthenticator{Username: username, Password: password},
		TimeoutsConfig: gocb.TimeoutsConfig{
			ConnectTimeout: patience, KVTimeout: patience, KVDurableTimeout: patience, ManagementTimeout: 30 * time.Second,
		},
	}
	if scheme == "couchbases" {
		pem, err := os.ReadFile(os.Getenv("SETTEE_CERTIFICATE"))
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", os.Getenv("SETTEE_CERTIFICATE"))
		}
		options.SecurityConfig.TLSRootCAs = roots
	}
	cluster, err := gocb.Connect(scheme+"://"+os.Getenv("SETTEE_ADDRESS"), options)
	if err != nil {
		return nil, err
	}
	return cluster, cluster.WaitUntilReady(patience, &gocb.WaitUntilReadyOptions{
		ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeManagement},
	})
}

func TestMain(m *testing.M) {
	for _, scheme := range []string{"couchbase", "couchbases"} {
		cluster, err := connect(scheme, os.Getenv("SETTEE_USERNAME"), os.Getenv("SETTEE_PASSWORD"))
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", scheme, err)
			os.Exit(1)
		}
		clusters[scheme] = cluster
	}
	code := m.Run()
	for _, cluster := range clusters {
		_ = cluster.Close(nil)
	}
	os.Exit(code)
}

func openBucket(t *testing.T, scheme, name string) *gocb.Bucket {
	t.Helper()
	bucket := clusters[scheme].Bucket(name)
	if err := bucket.WaitUntilReady(patience, nil); err != nil {
		t.Fatalf("bucket %s over %s: %v", name, scheme, err)
	}
	return bucket
}

// everywhere runs a test over every way to reach a default collection.
func everywhere(t *testing.T, test func(t *testing.T, collection *gocb.Collection, key string)) {
	for _, way := range []struct{ scheme, bucket string }{
		{"couchbase", "main"}, {"couchbases", "main"}, {"couchbase", "ephemeral"},
	} {
		t.Run(way.scheme+"/"+way.bucket, func(t *testing.T) {
			test(t, openBucket(t, way.scheme, way.bucket).DefaultCollection(), newKey())
		})
	}
}

func newKey() string { return fmt.Sprintf("go-%016x", rand.Uint64()) }

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
