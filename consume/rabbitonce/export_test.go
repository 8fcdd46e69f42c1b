package rabbitonce

import "time"

func init() { askWithin = 3 * time.Second }
