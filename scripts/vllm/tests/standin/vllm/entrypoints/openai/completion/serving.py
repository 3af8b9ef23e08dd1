"""OpenAIServingCompletion of vLLM 0.32 in outline: the same signatures, the same events in the same order."""

import json


def dump(chunk):
    return f"data: {json.dumps(chunk, separators=(',', ':'), ensure_ascii=False)}\n\n"


class OpenAIServingCompletion:
    async def completion_stream_generator(
        self,
        request,
        engine_inputs,
        result_generator,
        request_id,
        created_time,
        model_name,
        num_prompts,
        tokenizer,
        request_metadata,
    ):
        tokens, echoed = 0, False
        base = {"id": request_id, "object": "text_completion", "created": created_time, "model": model_name}
        try:
            async for prompt_index, res in result_generator:
                for output in res.outputs:
                    text = output.text
                    if request.echo and not echoed:
                        text, echoed = "the prompt" + text, True
                    tokens += len(output.token_ids)
                    choice = {
                        "index": output.index + prompt_index,
                        "text": text,
                        "logprobs": None,
                        "finish_reason": output.finish_reason,
                        "stop_reason": None,
                        "prompt_token_ids": None,
                        "token_ids": output.token_ids if request.return_token_ids else None,
                    }
                    chunk = {**base, "choices": [choice]}
                    if request.continuous_usage:
                        chunk["usage"] = {"completion_tokens": tokens}
                    yield dump(chunk)
            if request.include_usage:
                yield dump({**base, "choices": [], "usage": {"completion_tokens": tokens}})
        except Exception as e:
            yield dump({"error": {"message": str(e), "type": "InternalServerError", "param": None, "code": 500}})
        yield "data: [DONE]\n\n"

    def request_output_to_completion_response(
        self, final_res_batch, request, request_id, created_time, model_name, tokenizer, request_metadata
    ):
        texts = [output.text for res in final_res_batch for output in res.outputs]
        params = final_res_batch[0].kv_transfer_params
        return json.dumps({"id": request_id, "texts": texts, "kv_transfer_params": params})
