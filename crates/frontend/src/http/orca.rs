//! Load reports in response headers, for load balancers (ORCA). Requests ask for one by `endpoint-load-metrics-format`:
//! `generate` reports the key-value cache of its model (P 1.13), `infer` the load of the server (not in Triton).

use super::context::HttpContext;
use super::reply::Reply;
use super::request::RequestHead;
use crate::exchange::HttpExchange;
use engine::{KeyValueCache, Load};

const FORMAT: &str = "endpoint-load-metrics-format";

/// Adds the load of a model's cache to a reply if the request was accepted and asks for it in a known format.
pub fn add_cache_report(exchange: &HttpExchange<'_>, mut reply: Reply) -> Reply {
    // Responses to accepted requests are chunked.
    if reply.chunked
        && let Some(format) = exchange.head.headers.get(FORMAT)
    {
        let cache = exchange.version().ok().and_then(|version| version.key_value_cache());
        reply.load = cache.and_then(|cache| cache_report(format, cache)).map(String::into_boxed_str);
        if reply.load.is_none() {
            let name = exchange.names().model;
            log::debug!("no load of model '{name}' to report: it has no key-value cache, or the format is unknown");
        }
    }
    reply
}

/// Adds the load of the server to a reply or an error if the request asks for it in a known format.
#[inline]
pub fn add_load_report(context: &HttpContext, head: &RequestHead, mut reply: Reply) -> Reply {
    if let Some(format) = head.headers.get(FORMAT) {
        reply.load = load_report(format, context.engine.load()).map(String::into_boxed_str);
    }
    reply
}

/// The value of the header, with the names of `xds.data.orca.v3.OrcaLoadReport`. None for another format.
fn load_report(format: &[u8], load: Load) -> Option<String> {
    let Load { utilization, requests_per_second: rate, errors_per_second: errors } = load;
    match format {
        b"json" => Some(format!(
            r#"JSON {{"application_utilization":{utilization:?},"rps_fractional":{rate:?},"eps":{errors:?}}}"#
        )),
        b"text" => {
            Some(format!("TEXT application_utilization={utilization:.6}, rps_fractional={rate:.6}, eps={errors:.6}"))
        }
        _ => None,
    }
}

/// The value of the header. None for another format, and for a cache without blocks.
fn cache_report(format: &[u8], cache: KeyValueCache) -> Option<String> {
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
    fn loads_of_the_server_are_written_as_envoy_reads_them() {
        let load = Load { utilization: 0.25, requests_per_second: 1e-9, errors_per_second: 3.0 };
        let json = r#"JSON {"application_utilization":0.25,"rps_fractional":1e-9,"eps":3.0}"#;
        assert_eq!(load_report(b"json", load).as_deref(), Some(json));
        let text = "TEXT application_utilization=0.250000, rps_fractional=0.000000, eps=3.000000";
        assert_eq!(load_report(b"text", load).as_deref(), Some(text));
        assert_eq!(load_report(b"bin", load), None);
    }

    #[test]
    fn p115_o23_loads_are_written_as_the_reference_writes_them() {
        let check = |format: &str, [blocks_used, blocks_max, tokens_per_block]: [u64; 3], expected: Option<&str>| {
            let cache = KeyValueCache { blocks_used, blocks_max, tokens_per_block };
            assert_eq!(cache_report(format.as_bytes(), cache).as_deref(), expected, "{format} {cache:?}");
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
