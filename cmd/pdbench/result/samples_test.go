package result

import "testing"

func TestSamples_NearestRank(t *testing.T) {
	ten := Merge(Samples{3, 1, 2}, Samples{10, 9}, nil, Samples{5, 5, 7, 8, 6})
	for _, tt := range []struct {
		of    Samples
		share float64
		want  int
	}{
		{nil, 0.5, 0}, {Samples{4}, 0.01, 4}, {Samples{4}, 1, 4}, {Samples{4, 9}, 0.5, 4}, {Samples{4, 9}, 0.51, 9},
		{ten, 0, 1}, {ten, 0.1, 1}, {ten, 0.11, 2}, {ten, 0.5, 5}, {ten, 0.6, 6}, {ten, 0.9, 9}, {ten, 0.99, 10}, {ten, 1, 10},
	} {
		if got := int(tt.of.At(tt.share)); got != tt.want {
			t.Errorf("%v at %g: got %d, want %d", tt.of, tt.share, got, tt.want)
		}
	}
}
