package body

import (
	"bytes"

	"carryover/sse/rawjson"
)

// Only the model's processor knows how many tokens media take. These are round numbers within the range of common
// models.
const (
	// imageTokens is for an image: 576 in LLaVA 1.5, 256 to 1,280 in the range that Qwen2-VL's model card recommends
	// (one per 28 × 28 pixels), 2,353 in Phi-3-vision.
	imageTokens = 1024
	// videoTokens is for 32 frames, vLLM's default (multimodal/video.py), of 196 tokens each, as in LLaVA-OneVision.
	videoTokens = 32 * 196
	// audioPerSecond is Qwen2-Audio's rate, one token per 40 ms; Ultravox has a quarter of it.
	audioPerSecond = 25
	// audioUnknown is the length in seconds that is assumed for audio that is not in the request: the window of
	// Whisper's encoder.
	audioUnknown = 30
	// Bytes per second of speech as it is sent: 16 kHz in 16 bits and one channel, or compressed to 64 kbit/s.
	wavePerSecond, compressedPerSecond = 32_000, 8_000
)

// readPart measures a member of a content part. The names are from vLLM's renderers/chat_utils.py.
func (m *messageLength) readPart(name, raw []byte) {
	if rawjson.IsNull(raw) {
		return
	}
	switch string(name) {
	case "text", "refusal", "thinking":
		m.Bytes += rawjson.TextLen(raw)
		return
	case "type":
		return
	case "detail", "uuid", "cache_control", "id", "tool_use_id", "signature", "annotations":
	case "image_url", "source", "input_image", "image_pil", "image_embeds":
		m.Media += imageTokens
	case "video_url", "video_embeds":
		m.Media += videoTokens
	case "audio_url", "input_audio", "audio_embeds":
		m.Media += audioTokens(raw)
	default:
		m.Bytes += len(raw)
	}
	m.odd = true
}

// audioTokens estimates the tokens of audio by the length of its base64, or as audioUnknown without it.
func audioTokens(raw []byte) int {
	const address = 4 << 10 // longer values are no URLs
	if len(raw) < address && bytes.Contains(raw, []byte("http")) {
		return audioUnknown * audioPerSecond
	}
	perSecond := compressedPerSecond
	// The format stands before or after the data.
	if edge := min(len(raw), 64); bytes.Contains(raw[:edge], []byte("wav")) || bytes.Contains(raw[len(raw)-edge:], []byte("wav")) {
		perSecond = wavePerSecond
	}
	return len(raw) / 4 * 3 * audioPerSecond / perSecond
}
