//! Inferences of the in-process API: the same engine path as the network, without a socket.

use crate::core::NativeCore;
use crate::objects as js;
use crate::settle::Settled;
use bytes::Bytes;
use engine::{EngineResponse, Sink, Started};
use napi::bindgen_prelude::{BigInt, Buffer, Either4};
use napi_derive::napi;
use parking_lot::Mutex;
use protocol::{InferRequest, InferResponse, InputTensor, OutputForm, Parameter, RequestedOutput, Signature};
use std::sync::Arc;
use tensor::{DataType, Error, Name, Result, Shape};

pub fn request(r: js::NativeInferRequest) -> Result<InferRequest> {
    let u64_of = |n: &BigInt, what: &str| {
        let (negative, value, lossless) = n.get_u64();
        if negative || !lossless {
            return Err(Error::invalid(format!("'{what}' must be between 0 and 18446744073709551615")));
        }
        Ok(value)
    };
    Ok(InferRequest {
        priority: u64_of(&r.priority, "priority")?,
        timeout_us: u64_of(&r.timeout_us, "timeout")?,
        trace: None,
        id: r.id.into(),
        inputs: r
            .inputs
            .into_iter()
            .map(|t| InputTensor {
                name: t.name.into(),
                datatype: DataType::from_name(&t.datatype),
                shape: Shape::from_vec(t.shape),
                // Copied: JavaScript may write into its buffer as soon as the call returns.
                data: Bytes::copy_from_slice(&t.data).into(),
            })
            .collect(),
        outputs: r
            .outputs
            .into_iter()
            .map(|o| RequestedOutput {
                name: o.name.into(),
                form: OutputForm { binary: true, classification: o.classification, anywhere: false },
                region: None,
            })
            .collect(),
        default_form: OutputForm { binary: true, classification: 0, anywhere: false },
        parameters: r.parameters.into_iter().map(parameter).collect(),
        ..InferRequest::default()
    })
}

/// Integers up to this size are exact in JavaScript's numbers.
const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

fn parameter(p: js::NativeParameter) -> (Name, Parameter) {
    let value = match p.value {
        Either4::A(s) => Parameter::String(s.into()),
        Either4::B(n) => match n.get_i64() {
            (value, true) => Parameter::Int(value),
            // Like custom parameters over HTTP: integers that do not fit become doubles (protocol.md 1.12.5).
            (_, false) => Parameter::Double(n.get_u64().1 as f64),
        },
        Either4::C(n) if n.fract() == 0.0 && n.abs() <= SAFE_INTEGER_MAX => Parameter::Int(n as i64),
        Either4::C(n) => Parameter::Double(n),
        Either4::D(b) => Parameter::Bool(b),
    };
    (p.key.into(), value)
}

pub fn response(r: InferResponse, signature: &Signature) -> Result<js::NativeInferResponse> {
    let outputs = r
        .outputs
        .into_iter()
        .map(|o| {
            let o = if o.form.classification > 0 { protocol::classify::top_k(&o, signature)? } else { o };
            Ok(js::NativeTensor {
                name: o.name.to_string(),
                datatype: o.datatype.name().into(),
                shape: o.shape.to_vec(),
                // Copied: external buffers are freed only when the event loop turns, and would pin slabs meanwhile.
                data: Buffer::from(o.data.to_vec()?),
            })
        })
        .collect::<Result<_>>()?;
    let value = |value: Parameter| match value {
        Parameter::String(s) => Either4::A(s.to_string()),
        Parameter::Int(n) => Either4::B(BigInt::from(n)),
        Parameter::Double(d) => Either4::C(d),
        Parameter::Bool(b) => Either4::D(b),
    };
    let parameters = r.parameters.into_iter();
    let parameters = parameters.map(|(key, v)| js::NativeParameter { key: key.to_string(), value: value(v) }).collect();
    Ok(js::NativeInferResponse {
        model: r.model_name.to_string(),
        version: r.model_version.to_string(),
        id: r.id.to_string(),
        parameters,
        outputs,
    })
}

/// Receives the only response of a request; decoupled models are rejected earlier.
struct OnlyAnswer<F>(Mutex<Option<F>>);

impl<F: FnOnce(Result<Box<InferResponse>>) + Send> OnlyAnswer<F> {
    fn new(answered: F) -> Self {
        Self(Mutex::new(Some(answered)))
    }
}

impl<F: FnOnce(Result<Box<InferResponse>>) + Send> Sink for OnlyAnswer<F> {
    fn put(&self, answer: EngineResponse) {
        let result = match answer.response {
            Some(result) => result,
            None => Err(Error::internal("expected a single response, got 0").by_model()),
        };
        let answered = self.0.lock().take();
        if let Some(answered) = answered {
            answered(result);
        }
    }
}

#[napi]
impl NativeCore {
    /// Starts an inference with one response; `cancel` cancels it.
    #[napi]
    pub fn infer(
        &self,
        #[napi(ts_arg_type = "Ticket<NativeInferResponse>")] ticket: u32,
        request: js::NativeInferRequest,
    ) -> crate::failure::Result<()> {
        let settler = self.settler()?;
        let (name, version) = (request.model.clone(), request.version.clone());
        let started = self.server.engine().model(&name, &version).and_then(|model| {
            protocol::grpc::reject_decoupled(&model.signature)?;
            let request = self::request(request)?;
            let (settler, tickets, signature) = (settler.clone(), self.tickets.clone(), model.signature.clone());
            let answered = move |result: Result<Box<InferResponse>>| {
                tickets.lock().remove(&ticket);
                let result = result.and_then(|r| response(*r, &signature));
                settler.settle(ticket, result.map(|r| Settled::Response(Box::new(r))));
            };
            let sink = answered.clone();
            let started = model.call(Box::new(request), || Arc::new(OnlyAnswer::new(sink)), None)?;
            Ok(match started {
                Started::Answered(result) => {
                    answered(result);
                    None
                }
                Started::Queued(handle) => Some(handle),
            })
        });
        match started {
            Ok(None) => {}
            Ok(Some(handle)) => {
                // Locked before the check: a response either came already or will find the handle to remove.
                let mut tickets = self.tickets.lock();
                if !handle.is_settled() {
                    tickets.insert(ticket, handle);
                }
            }
            Err(e) => settler.settle(ticket, Err(e)),
        }
        Ok(())
    }

    #[napi]
    pub fn cancel(&self, ticket: u32) {
        let pull = self.streams.lock().remove(&ticket);
        if let Some(pull) = pull {
            return pull.cancel();
        }
        let handle = self.tickets.lock().remove(&ticket);
        if let Some(handle) = handle {
            handle.cancel();
        }
    }
}
