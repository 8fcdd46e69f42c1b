package httponce

// BodyMemory is how much memory the larger request bodies take up now.
func BodyMemory() int64 { return bodyMemory.Load() }
