//! What `generate` tells load balancers of the model that answered (ORCA, P 1.13): how full its key-value cache is.

use super::reply::Reply;
use super::request::RequestHead;
use super::service::HttpContext;
use engine::KeyValueCache;

/// Adds the load to a reply, if the request asks for it in a form that is known. One that was refused says nothing.
pub fn reported(context: &HttpContext, name: &str, version: &str, head: &RequestHead, mut reply: Reply) -> Reply {
    // What is accepted is answered in chunks.
    if reply.chunked
        && let Some(format) = head.headers.get("endpoint-load-metrics-format")
    {
        let cache = context.engine.model(name, version).ok().and_then(|version| version.key_value_cache());
        reply.load = cache.and_then(|cache| load(format, cache)).map(String::into_boxed_str);
        if reply.load.is_none() {
            log::debug!("no load of model '{name}' to report: it has no key-value cache, or the format is unknown");
        }
    }
    reply
}

/// The value of the header. None for another format, and for a cache without blocks.
fn load(format: &[u8], cache: KeyValueCache) -> Option<String> {
    let KeyValueCache { blocks_used, blocks_max, tokens_per_block } = cache;
    if blocks_max == 0 {
        return None;
    }
    let used = blocks_used as f64 / blocks_max as f64;
    let tokens = blocks_max.saturating_mul(tokens_per_block);
    match format {
        b"json" => Some(format!(
            r#"JSON {{"named_metrics":{{"kv_cache_utilization":{used:?},"max_token_capacity":{tokens}}}}}"#
        )),
        b"text" => Some(format!(
            "TEXT named_metrics.kv_cache_utilization={used:.6}, named_metrics.max_token_capacity={tokens}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p115_o23_loads_are_written_as_the_reference_writes_them() {
        let check = |format: &str, [blocks_used, blocks_max, tokens_per_block]: [u64; 3], expected: Option<&str>| {
            let cache = KeyValueCache { blocks_used, blocks_max, tokens_per_block };
            assert_eq!(load(format.as_bytes(), cache).as_deref(), expected, "{format} {cache:?}");
        };
        let json = r#"JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":4096}}"#;
        check("json", [16, 64, 64], Some(json));
        let text = "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=4096";
        check("text", [16, 64, 64], Some(text));
        let full = r#"JSON {"named_metrics":{"kv_cache_utilization":1.0,"max_token_capacity":18446744073709551615}}"#;
        check("json", [u64::MAX, u64::MAX, 64], Some(full));
        check("xml", [16, 64, 64], None);
        check("JSON", [16, 64, 64], None);
        check("", [16, 64, 64], None);
        check("json", [0, 0, 64], None);
    }
}
