package redisstore

import (
	"regexp"
	"testing"
)

// A script uses the keys that it is given, and makes no other names: some servers refuse that, and they would refuse
// the completion of an operation that has steps, when its effect has happened.
func TestScriptsMakeNoKeys(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`KEYS\[\d\]\s*\.\.|\.\.\s*KEYS\[`)
	for name, s := range map[string]*script{
		"claim": claimScript, "complete": completeScript, "release": releaseScript, "renew": renewScript, "savestep": saveStepScript,
		"get": getScript, "delete": deleteScript, "watch": watchScript,
	} {
		if found := made.FindString(s.text); found != "" {
			t.Errorf("%q in %s", found, name)
		}
	}
}
