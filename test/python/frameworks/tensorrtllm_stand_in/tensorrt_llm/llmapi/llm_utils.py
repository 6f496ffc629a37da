def update_llm_args_with_extra_dict(llm_args, llm_args_dict, extra_llm_api_options=None):
    return {**llm_args, **llm_args_dict}
