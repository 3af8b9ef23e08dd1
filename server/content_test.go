package server_test

import (
	"strings"
	"testing"
)

// The ids of an image, an audio, a video or a file are placeholders: they say nothing of what it shows, and a text can
// spell them.
func TestContent_ThatIsNotTextLeavesNoTokenTicket(t *testing.T) {
	for name, part := range map[string]string{
		"image": `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}`,
		"audio": `{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}`,
		"video": `{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}`,
		"file":  `{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERg==","filename":"a.pdf"}}`,
	} {
		ways(t, func(t *testing.T, stream bool) {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, setup{cfg: releasing})
				r.shot()
				body := strings.Replace(ask("c", stream, "What is this?"), `"content":"What is this?"`,
					`"content":[{"type":"text","text":"What is this?"},`+part+`]`, 1)
				r.wantOK(r.send(body), "miss;reason=ineligible_non_text_content")
				r.wantStored(2, "ineligible_non_text_content")
				r.shot()
				r.wantCarried(2, left(r.decode[0].seen()[1]))
			})
		})
	}
}
