package telemetry

import (
	"go.opentelemetry.io/otel/attribute"

	"carryover/upstream/body"
)

// Attributes of OpenTelemetry's conventions: HTTP is stable, gen_ai in development (repository semantic-conventions-genai, 2026-11).
const (
	attrErrorType  = attribute.Key("error.type")
	attrMethod     = attribute.Key("http.request.method")
	attrRoute      = attribute.Key("http.route")
	attrStatusCode = attribute.Key("http.response.status_code")
	attrPath       = attribute.Key("url.path")
	attrScheme     = attribute.Key("url.scheme")

	attrOperation    = attribute.Key("gen_ai.operation.name")
	attrProvider     = attribute.Key("gen_ai.provider.name")
	attrModel        = attribute.Key("gen_ai.request.model")
	attrConversation = attribute.Key("gen_ai.conversation.id")
	attrFinish       = attribute.Key("gen_ai.response.finish_reasons")
	attrFirstChunk   = attribute.Key("gen_ai.response.time_to_first_chunk") // in seconds
	attrTokenType    = attribute.Key("gen_ai.token.type")
	attrInputTokens  = attribute.Key("gen_ai.usage.input_tokens")
	attrOutputTokens = attribute.Key("gen_ai.usage.output_tokens")
	attrCachedTokens = attribute.Key("gen_ai.usage.cache_read.input_tokens")
)

// Values of those attributes.
const (
	methodPost   = "POST"
	schemeHTTP   = "http" // TLS ends before the program
	providerVLLM = "vllm" // our own word; the conventions name no provider for vLLM
)

// operation returns what an endpoint does, in the words of the conventions.
func operation(api body.API) string {
	if api == body.Text {
		return "text_completion"
	}
	return "chat"
}

// Attributes of our own.
const (
	attrAttempt    = attribute.Key("carryover.attempt") // 0 for the first
	attrRole       = attribute.Key("carryover.role")
	attrInstance   = attribute.Key("carryover.instance")
	attrPrefill    = attribute.Key("carryover.prefill.instance")
	attrDecode     = attribute.Key("carryover.decode.instance")
	attrWay        = attribute.Key("carryover.path")
	attrWayReason  = attribute.Key("carryover.path.reason")
	attrRetries    = attribute.Key("carryover.retries")
	attrSource     = attribute.Key("carryover.conversation.source")
	attrOutcome    = attribute.Key("carryover.reuse.outcome") // hit, prefix, miss or off
	attrReason     = attribute.Key("carryover.reuse.reason")
	attrProof      = attribute.Key("carryover.reuse.proof")
	attrOffered    = attribute.Key("carryover.reuse.tokens_offered")
	attrRead       = attribute.Key("carryover.reuse.tokens_read")      // tokens that reuse spared prefill
	attrConfirmed  = attribute.Key("carryover.reuse.tokens_confirmed") // prompt tokens that prefill took from caches
	attrSaved      = attribute.Key("carryover.reuse.saved")            // prefill time, in seconds
	attrStored     = attribute.Key("carryover.stored")                 // yes, or why the answer left no ticket
	attrTimeQueued = attribute.Key("carryover.queue.time")             // in seconds
	attrTTFT       = attribute.Key("carryover.ttft")                   // until a stream's first byte, in seconds
	attrWhole      = attribute.Key("carryover.answer")                 // until a whole answer, in seconds
)
