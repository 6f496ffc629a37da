//! Inferences of the in-process API: the same engine path as the network, without a socket.

use crate::objects as js;
use bytes::Bytes;
use engine::{EngineResponse, Sink};
use napi::bindgen_prelude::{BigInt, Buffer, Either4};
use parking_lot::Mutex;
use protocol::{InferRequest, InferResponse, InputTensor, OutputForm, Parameter, RequestedOutput, Signature};
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
pub struct OnlyAnswer<F>(Mutex<Option<F>>);

impl<F: FnOnce(Result<Box<InferResponse>>) + Send> OnlyAnswer<F> {
    pub fn new(answered: F) -> Self {
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
