package httponce

// UnmarshalBinary reads an answer from a record, for a tool that shows records: from the data of a result whose codec
// is "http/1", from the summary of one, which has no body, or from the detail of a failure whose code is "http_" and
// a status. Of a large answer that is the head and the beginning of the body; the rest is in records of its own. It
// keeps no part of data. If data is none of these, it returns an error and leaves the answer as it was.
func (a *Answer) UnmarshalBinary(data []byte) error {
	var got Answer
	if err := got.decode(data); err != nil {
		return err
	}
	*a = got
	return nil
}
