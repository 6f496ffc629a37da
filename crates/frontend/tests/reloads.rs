//! One request sees one load of its model, however often the model is reloaded meanwhile. Each load has a number, which
//! its responses tell.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads")]
#![allow(missing_docs)]

mod common;
use backend::{
    Backend, Batch, InstanceEventsRef, KeyValueCache, Marks, Model, OpenSpec, Opened, Outcome, Readiness, RemoteModel,
    RunControl,
};
use bytes::Bytes;
use common::{Grpc, Server, client, finish, frame, infer_binary, infer_request, post, publish, wait_for};
use memory::Budget;
use prost::Message;
use protocol::pb::inference as pb;
use protocol::{OutputTensor, Signature};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tensor::{Data, DataType, RegionRef, Result};

/// Loads beside the requests of each kind.
const LOADS: u32 = 2_000;
const REQUESTS: u32 = 200;
/// More than a body that is read at once.
const VALUES: usize = 50_000;
const INFER: &str = "/v2/models/told/infer";

struct Loads {
    /// Number of the newest load, which may not serve yet.
    opened: AtomicU32,
    /// Number of the load that serves.
    serving: AtomicU32,
    /// Loads that lent regions, by the identity of the region.
    lent: Mutex<HashMap<(u64, u64), u32>>,
    /// Number of the load that something waits for.
    wanted: AtomicU32,
    budget: Budget,
}

impl Loads {
    fn wait_for_load_after(&self, load: u32) {
        self.wanted.fetch_max(load + 1, SeqCst);
        wait_for("the next load", || self.serving.load(SeqCst) > load);
    }

    /// Waits until the body that was sent in part is read, and then for another load. Returns the number of the newest
    /// load before that.
    fn wait_within_body(&self) -> u32 {
        wait_for("the body to be read", || self.budget.counters().used_bytes.iter().sum::<usize>() > 0);
        let newest = self.opened.load(SeqCst);
        self.wait_for_load_after(newest);
        newest
    }
}

/// `Loads::wait_within_body`, beside the tasks of the thread.
async fn within_body(loads: &Arc<Loads>) -> u32 {
    let loads = loads.clone();
    tokio::task::spawn_blocking(move || loads.wait_within_body()).await.unwrap()
}

struct Backends(Arc<Loads>);

impl Backend for Backends {
    fn name(&self) -> &'static str {
        "loads"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(Self(self.0.clone())))
    }
}

impl Opened for Backends {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        let load = self.0.opened.fetch_add(1, SeqCst) + 1;
        Ok(Arc::new(Loaded { load, loads: self.0, signature }))
    }
}

struct Loaded {
    load: u32,
    loads: Arc<Loads>,
    signature: Arc<Signature>,
}

impl Model for Loaded {
    fn execute(&self, _: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        // All that follows an execution comes after another load, too.
        self.loads.wait_for_load_after(self.load);
        for entry in batch.requests.iter_mut() {
            if let Data::Region(region) = &entry.request.inputs[0].data {
                let lender = self.loads.lent.lock().unwrap()[&region.extent().object];
                assert_eq!(lender, self.load, "the load that lent the memory of a request, and that which runs it");
            }
            let (name, form) = (self.signature.outputs[0].name.clone(), entry.request.outputs.first());
            let output = OutputTensor {
                name,
                index: 0,
                datatype: DataType::Int32,
                shape: [1].into_iter().collect(),
                data: Bytes::copy_from_slice(&self.load.to_le_bytes()).into(),
                form: form.map_or(entry.request.default_form, |wanted| wanted.form),
            };
            entry.result = Some(Ok(Outcome { outputs: [output].into_iter().collect(), parameters: Vec::new() }));
        }
        Marks::default()
    }
    fn remote(&self) -> Option<&dyn RemoteModel> {
        Some(self)
    }
    fn key_value_cache(&self) -> Option<KeyValueCache> {
        Some(KeyValueCache { blocks_used: 0, blocks_max: u64::from(self.load), tokens_per_block: 1 })
    }
}

impl RemoteModel for Loaded {
    fn serve(&self, _: InstanceEventsRef) {}
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }
    fn lend_input(&self, bytes: usize) -> Option<RegionRef> {
        let region: RegionRef = Arc::new(memory::Memfd::new(bytes).expect("memory"));
        self.loads.lent.lock().unwrap().insert(region.extent().object, self.load);
        Some(region)
    }
}

/// Sends `REQUESTS` requests one after another while the model is loaded `LOADS` times. `ask` returns the load that
/// answered, and the newest one when the server had found the version.
fn check(ask: impl Fn(&Server, &Arc<Loads>) -> (u32, u32) + Sync) {
    let budget = Budget::new(64 << 20);
    let (opened, serving, wanted) = Default::default();
    let loads = Arc::new(Loads { opened, serving, lent: Mutex::default(), wanted, budget: budget.clone() });
    let server = Server::with_backend(Arc::new(Backends(loads.clone())), budget);
    let load = || {
        publish(&server.engine, "told", "loads", false);
        loads.serving.store(loads.opened.load(SeqCst), SeqCst);
    };
    load();
    std::thread::scope(|threads| {
        let asking = threads.spawn(|| {
            for request in 1..=REQUESTS {
                let before = loads.serving.load(SeqCst);
                let (answered, newest) = ask(&server, &loads);
                assert!((before..=newest).contains(&answered), "load {answered} answered, of {before} to {newest}");
                wait_for("the charge to end", || loads.budget.counters().used_bytes.iter().sum::<usize>() == 0);
                loads.wanted.fetch_max(request * (LOADS / REQUESTS), SeqCst);
            }
        });
        let is_wanted = || loads.opened.load(SeqCst) < loads.wanted.load(SeqCst);
        while !asking.is_finished() || is_wanted() {
            wait_for("a reason to load", || asking.is_finished() || is_wanted());
            load();
        }
    });
    assert!(loads.opened.load(SeqCst) >= LOADS);
}

/// The load in the last bytes of a response.
fn load_in(status: u16, body: &[u8]) -> u32 {
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(body));
    u32::from_le_bytes(*body.last_chunk().expect("four bytes"))
}

/// Sends a request in two parts.
fn check_parts(request: &[u8]) {
    check(|server, loads| {
        let mut client = server.connect();
        let (begin, end) = request.split_at(100_000);
        client.send(begin);
        let newest = loads.wait_within_body();
        client.send(end);
        let response = client.response();
        (load_in(response.status, &response.body), newest)
    });
}

#[test]
fn a_body_in_memory_of_the_model_is_run_by_the_load_that_lent_it() {
    let (head, body) = infer_binary(&vec![7; VALUES]);
    check_parts(&post(INFER, &format!("Inference-Header-Content-Length: {head}\r\n"), &body));
}

#[test]
fn a_chunked_body_is_run_by_the_load_that_accepted_its_head() {
    let (head, body) = infer_binary(&vec![7; VALUES]);
    let headers = format!("Transfer-Encoding: chunked\r\nInference-Header-Content-Length: {head}\r\n");
    let begin = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\n{headers}\r\n{:x}\r\n", body.len());
    check_parts(&[begin.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat());
}

#[test]
fn a_body_over_h2c_is_run_by_the_load_that_accepted_its_head() {
    let (head, body) = infer_binary(&vec![7; VALUES]);
    check(|server, loads| {
        client(async {
            let mut http = Grpc::connect_to(server.http).await;
            let request = http::Request::post(format!("http://x{INFER}"))
                .header("inference-header-content-length", head)
                .body(())
                .unwrap();
            let (response, mut to) = http.send.send_request(request, false).unwrap();
            let mut end = Bytes::copy_from_slice(&body);
            to.send_data(end.split_to(100_000), false).unwrap();
            let newest = within_body(loads).await;
            to.send_data(end, true).unwrap();
            let response = response.await.unwrap();
            let (status, mut from) = (response.status().as_u16(), response.into_body());
            let mut all = Vec::new();
            while let Some(chunk) = from.data().await {
                all.extend_from_slice(&chunk.unwrap());
            }
            (load_in(status, &all), newest)
        })
    });
}

#[test]
fn a_message_in_several_frames_is_run_by_one_load() {
    let message = frame(0, &infer_request("told", "", &vec![7; VALUES]).encode_to_vec());
    check(|server, loads| {
        client(async {
            let mut grpc = Grpc::connect(server).await;
            let (response, mut to) = grpc.open("/inference.GRPCInferenceService/ModelInfer", &[]).await;
            to.send_data(message.slice(..100_000), false).unwrap();
            within_body(loads).await;
            to.send_data(message.slice(100_000..), true).unwrap();
            let outcome = finish(response).await;
            assert_eq!(outcome.status, 0, "{}", outcome.message);
            let response = pb::ModelInferResponse::decode(outcome.messages[0].1.clone()).unwrap();
            // The model is named in the message: its last piece may come before the version is found.
            (load_in(200, &response.raw_output_contents[0]), loads.opened.load(SeqCst))
        })
    });
}

#[test]
fn the_load_that_generates_is_the_one_whose_cache_is_reported() {
    check(|server, loads| {
        let headers = "endpoint-load-metrics-format: text\r\n";
        let response = server.post("/v2/models/told/generate", headers, br#"{"IN":[1]}"#);
        let report = response.header("endpoint-load-metrics").expect("a report");
        let load = report.rsplit_once('=').expect("a value").1;
        assert!(response.text().starts_with(&format!("{{\"OUT\":{load},")), "{report}: {}", response.text());
        (load.parse().unwrap(), loads.opened.load(SeqCst))
    });
}
