//! The load generator of `crates/load` and floors for `npm run bench`.
//!
//! One binary, so that the same code drives every subject, and all floors are built with the same compiler settings.

mod arguments;
mod device_copy;
mod disturb;
mod epoll;
mod floors;
mod frames;
mod measure;
mod ort_loop;
mod paced;
mod path;
mod stream;
mod tls_echo;

use arguments::Arguments;

fn main() {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    if command == "prompt" {
        eprintln!("nereid-bench prompt: {}", prompt(words));
        std::process::exit(1);
    }
    let arguments = Arguments::new(words);
    let result = arguments.and_then(|a| match command.as_str() {
        "load" => {
            // It stands for clients on other machines, which do not wait for the server's threads.
            memory::thread::request_short_slices();
            measure::run(&a)
        }
        "stream" => {
            memory::thread::request_short_slices();
            stream::run(&a)
        }
        "read-slowly" => stream::read_slowly(&a),
        "ask" => disturb::ask(&a),
        "compute" => {
            disturb::compute();
            Ok(())
        }
        "floor-http" => floors::http(&a),
        "floor-h2" => floors::h2(&a),
        "floor-epoll" => epoll::serve(&a),
        "floor-frames" => frames::serve(&a),
        "floor-paced" => paced::serve(&a),
        "floor-tls" => tls_echo::serve(&a),
        "ort-loop" => ort_loop::run(&a),
        "device-copy" => device_copy::run(&a),
        "path-http" => path::http(&a),
        "path-http-varied" => path::http_varied(&a),
        "path-http2-varied" => path::http2_varied(&a),
        "path-grpc" => path::grpc(&a),
        "path-http1" => path::http1(&a),
        "path-http1-varied" => path::http1_varied(&a),
        "path-http2" => path::http2(&a),
        "path-many" => path::many(&a),
        "path-text" => path::text(&a),
        _ => Err("usage: nereid-bench load|stream|read-slowly|ask|compute|floor-http|floor-h2|floor-epoll|\
                 floor-frames|floor-paced|floor-tls|ort-loop|device-copy|path-http|path-http1|path-grpc|path-http2|\
                 path-many|path-text --name=value …, \
                 or prompt COMMAND …"
            .into()),
    });
    if let Err(e) = result {
        eprintln!("nereid-bench {command}: {e}");
        std::process::exit(1);
    }
}

/// Becomes another program, all of whose threads have the short slices that Nereid's reactors ask for: whoever is
/// compared must not lose to a setting of the scheduler. Returns only what went wrong.
fn prompt(mut words: impl Iterator<Item = String>) -> std::io::Error {
    use std::os::unix::process::CommandExt;
    let Some(program) = words.next() else { return std::io::Error::other("a command is needed") };
    memory::thread::request_short_slices();
    std::process::Command::new(program).args(words).exec()
}
