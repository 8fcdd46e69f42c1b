package httponce

// UnmarshalBinary reads an answer as a record keeps it, for a tool that shows records: the data of a result whose codec is
// "http/1", the summary of one, which has no body, and the detail of a failure whose code is "http_" and a status. Of a
// large answer it is the head and the beginning of the body, whose rest is in records of its own. It keeps nothing of data. What is
// none of these is an error, and leaves the answer as it was.
func (a *Answer) UnmarshalBinary(data []byte) error {
	var got Answer
	if err := got.decode(data); err != nil {
		return err
	}
	*a = got
	return nil
}
