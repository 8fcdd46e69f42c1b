package driver

// Fingerprint is a hash of the parts of a request that must be equal when its key is used again. Alg names what was
// hashed and how; sums of different Alg are not compared. The zero value is no fingerprint.
type Fingerprint struct {
	Alg string // at most 32 bytes
	Sum [32]byte
}

// MaxFingerprintAlgLen is the longest Alg, in bytes.
const MaxFingerprintAlgLen = 32

// IsZero reports whether there is no fingerprint.
func (f Fingerprint) IsZero() bool { return f.Alg == "" }

// Conflicts reports whether f and saved have the same Alg and differ.
func (f Fingerprint) Conflicts(saved Fingerprint) bool {
	return f.Alg != "" && f.Alg == saved.Alg && f.Sum != saved.Sum
}
