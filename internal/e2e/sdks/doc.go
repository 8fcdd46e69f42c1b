// Package sdks runs real SDKs of other vendors against a service that everonce protects: no refusal may look like a
// success to them, and docs/reference/sdks.md lists what each makes of it.
package sdks
