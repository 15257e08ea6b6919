package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/anishathalye/porcupine"
)

// check reads a history as the recorder writes it.
func check(t *testing.T, text string) porcupine.CheckResult {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	histories, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, history := range histories {
		if result := porcupine.CheckOperationsTimeout(history.model, history.operations, 0); result != porcupine.Ok {
			return result
		}
	}
	return porcupine.Ok
}

const written = `{"client":0,"kind":"register","key":"r","op":"write","value":7,"call":0,"return":10,"result":null}
`

func TestRegisters(t *testing.T) {
	read := func(call, ret, result string) string {
		return `{"client":1,"kind":"register","key":"r","op":"read","call":` + call + `,"return":` + ret + `,"result":` + result + "}\n"
	}
	lost := `{"client":2,"kind":"register","key":"r","op":"write","value":8,"call":20}
`
	for name, want := range map[string]struct {
		history string
		result  porcupine.CheckResult
	}{
		"a write is read":                      {written + read("20", "30", "7"), porcupine.Ok},
		"a read beside a write sees either":    {written + read("5", "30", "null"), porcupine.Ok},
		"what was written is not gone":         {written + read("20", "30", "null"), porcupine.Illegal},
		"a lost write may have happened":       {written + lost + read("30", "40", "8"), porcupine.Ok},
		"a lost write may never have happened": {written + lost + read("30", "40", "7"), porcupine.Ok},
		"it does not come and go":              {written + lost + read("30", "40", "8") + read("50", "60", "7"), porcupine.Illegal},
		"nothing is read that was not written": {written + read("20", "30", "9"), porcupine.Illegal},
	} {
		if result := check(t, want.history); result != want.result {
			t.Errorf("%s: %v", name, result)
		}
	}
}

func TestCounters(t *testing.T) {
	add := func(call, ret, result string) string {
		return `{"client":1,"kind":"counter","key":"c","op":"add","call":` + call + `,"return":` + ret + `,"result":` + result + "}\n"
	}
	lost := `{"client":2,"kind":"counter","key":"c","op":"add","call":5}
`
	for name, want := range map[string]struct {
		history string
		result  porcupine.CheckResult
	}{
		"it counts":                   {add("0", "1", "1") + add("2", "3", "2"), porcupine.Ok},
		"two do not get the same":     {add("0", "9", "1") + add("1", "8", "1"), porcupine.Illegal},
		"a lost one may have counted": {add("0", "1", "1") + lost + add("10", "11", "3"), porcupine.Ok},
		"nothing else has":            {add("0", "1", "1") + add("10", "11", "3"), porcupine.Illegal},
	} {
		if result := check(t, want.history); result != want.result {
			t.Errorf("%s: %v", name, result)
		}
	}
}

func TestTolerance(t *testing.T) {
	for _, one := range []struct {
		undecided, keys int
		tooMany         bool
	}{{0, 34, false}, {1, 34, true}, {1, 100, false}, {13, 1313, false}, {14, 1313, true}} {
		if tooMany(one.undecided, one.keys) != one.tooMany {
			t.Errorf("%d of %d", one.undecided, one.keys)
		}
	}
}
