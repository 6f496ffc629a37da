//! Load generator and floors for `npm run bench`.
//!
//! One binary, so that every subject is driven by the same code and every floor is built with the same compiler settings.
//! `nereid-bench load …` prints one JSON line; the floors print `ready <port>` and serve until they are ended.

mod arguments;
mod check;
mod epoll;
mod floors;
mod grpc;
mod http1;
mod load;
mod ort_loop;
mod report;

use arguments::Arguments;

fn main() {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let arguments = Arguments::new(words);
    let result = arguments.and_then(|a| match command.as_str() {
        "load" => load::run(&a),
        "floor-http" => floors::http(&a),
        "floor-h2" => floors::h2(&a),
        "floor-epoll" => epoll::serve(&a),
        "ort-loop" => ort_loop::run(&a),
        _ => Err("usage: nereid-bench load|floor-http|floor-h2|floor-epoll|ort-loop --name=value …".into()),
    });
    if let Err(e) = result {
        eprintln!("nereid-bench {command}: {e}");
        std::process::exit(1);
    }
}
