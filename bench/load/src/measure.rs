//! `load`: closed and open loops of `nereid-load`, whose answers can be compared, with the result as one line of JSON.

use crate::arguments::{Arguments, Failure};
use load::plan::{self, Arrivals, Plan, Prepared, Protocol, Tls};
use load::report::Tally;

pub fn run(a: &Arguments) -> Result<(), Failure> {
    let ring = match a.optional("ring") {
        Some(_) => plan::read_ring(a.file("ring")?)?,
        None => {
            let headers = plan::headers(a.optional("headers").unwrap_or(""))?;
            vec![Prepared { headers, body: a.file("body")?, ..Prepared::default() }]
        }
    };
    let rate = a.number("rate", 0.0)?;
    let plan = Plan {
        protocol: match a.text("protocol")? {
            "http" => Protocol::Http,
            "grpc" => Protocol::Grpc,
            other => return Err(format!("--protocol={other}: http or grpc").into()),
        },
        address: a.text("address")?.to_owned(),
        method: a.optional("method").unwrap_or("POST").to_owned(),
        path: a.text("path")?.to_owned(),
        ring,
        verify: a.optional("verify").is_some(),
        expected: if a.optional("expect").is_some() { a.file("expect")? } else { bytes::Bytes::new() },
        connections: a.number("connections", 1)?,
        streams: a.number("streams", 1)?,
        warmup_s: a.number("warmup", 0.3)?,
        seconds: a.number("duration", 2.0)?,
        arrivals: if rate > 0.0 { Arrivals::Poisson } else { Arrivals::Closed },
        rate,
        seed: a.number("seed", 1)?,
        requests_max: a.number("requests", 0)?,
        // It measures servers that the bench started itself on loopback.
        tls: a.optional("tls").map(|_| Tls { insecure: true, ..Tls::default() }),
        ..Plan::default()
    };
    if let Some(path) = a.optional("once") {
        // One answer, written to a file: what the script checks, and what later answers are compared with.
        return Ok(std::fs::write(path, load::once(&plan)?)?);
    }
    let outcome = load::run(plan, || false, |_| {})?;
    print(&outcome.tally, outcome.seconds, outcome.rate(), outcome.unsent);
    Ok(())
}

/// `{"requests":…,"rate":…,"p50_us":…,…}`. `unsent`: arrivals of an open loop without a free connection in time.
pub fn print(tally: &Tally, seconds: f64, rate: f64, unsent: u64) {
    let us = |q: f64| tally.latency.quantile_us(q);
    println!(
        "{{\"requests\":{},\"seconds\":{seconds:.3},\"rate\":{rate:.2},\"p50_us\":{:.1},\
         \"p90_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1},\"errors\":{},\
         \"unsent\":{unsent},\"first_error\":\"{}\"}}",
        tally.latency.count(),
        us(0.5),
        us(0.9),
        us(0.99),
        us(0.999),
        tally.errors,
        first_error(tally),
    );
}

/// Text of the first failure, as it may stand in JSON.
pub fn first_error(tally: &Tally) -> String {
    tally.first_error().unwrap_or("").replace(['"', '\\', '\n'], " ")
}
