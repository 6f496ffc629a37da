//! Measures the overhead of an execution over ONNX Runtime's `Run`, with the add/sub model of two int32 [1,16] inputs,
//! alternating both in one process. `cargo run --release -p nereid-backend-onnx --example run_cost [rounds]`

#[path = "../tests/support/mod.rs"]
mod support;

use backend::{Batch, RunControl};
use std::time::Instant;
use support::*;
use tensor::{Data, DataType, Result};

fn main() -> Result<()> {
    let rounds: u32 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(200_000);
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(16)]));
    let signature = addsub_signature(8, DataType::Int32, &[16]);
    let model = version.load(&Default::default(), signature.clone());
    let shape = [1, 16];
    let data = i32s(0..16);
    let ours = |requests: usize| {
        let mut spent = 0;
        for _ in 0..rounds {
            // The front end creates requests, so this is not measured.
            let mut entries: Vec<_> = (0..requests)
                .map(|_| request(&signature, 1, &[(0, &shape, fresh(&data)), (1, &shape, fresh(&data))]))
                .collect();
            let control = RunControl::new(requests as u32);
            let start = Instant::now();
            model.execute(0, &mut Batch::new(&mut entries), &control);
            spent += start.elapsed().as_nanos();
        }
        spent as f64 / f64::from(rounds)
    };
    let names: (&[&str], &[&str]) = (&["INPUT0", "INPUT1"], &["OUTPUT0", "OUTPUT1"]);
    let bare = || {
        backend_onnx::bench::bench_bare_run(
            &library(),
            &version.0.join("model.onnx"),
            names,
            DataType::Int32,
            &shape,
            rounds,
        )
    };
    let (mut one, mut eight, mut floor) = (vec![], vec![], vec![]);
    for _ in 0..7 {
        floor.push(bare()?);
        one.push(ours(1));
        eight.push(ours(8));
    }
    let median = |v: &mut Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let (floor, one, eight) = (median(&mut floor), median(&mut one), median(&mut eight));
    println!("bare Run over prepared values        {floor:8.0} ns");
    println!("execute, 1 request                   {one:8.0} ns  ({:+.0} ns)", one - floor);
    println!("execute, batch of 8                  {eight:8.0} ns  ({:.0} ns per request)", eight / 8.0);
    println!("median of 7 turns of {rounds} rounds");
    Ok(())
}

/// Contents as a front end provides them: a slice of a counted body.
fn fresh(data: &Data) -> Data {
    Data::Bytes(data.to_vec().expect("in memory").into())
}
