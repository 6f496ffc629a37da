//! A raw binary request (P-079): the body is the contents of the model's only input, whose shape follows from the size.

use super::Limits;
use crate::check::IdPrefix;
use crate::infer::{InferRequest, InputTensor, OutputForm};
use crate::signature::{InputSpec, Signature};
use bytes::Bytes;
use smallvec::smallvec;
use tensor::{DataType, Error, Result, Shape, allowance, element_count, strings};

/// Makes the request. It has no id, so errors print `<id_unknown>`.
pub(super) fn parse(body: Bytes, signature: &Signature, limits: &Limits) -> Result<InferRequest> {
    if body.len() > limits.input_bytes_max {
        return Err(Error::invalid(format!(
            "Raw input has a byte_size ({} bytes) that exceeds the maximum allowed value of {} bytes. Use \
             --http-max-input-size to increase the limit.",
            body.len(),
            limits.input_bytes_max
        )));
    }
    let prefix = IdPrefix("");
    let [spec] = &signature.inputs[..] else {
        return Err(Error::invalid(format!(
            "{prefix}Raw request must only have 1 input (found 1) to be deduced but got {} inputs in '{}' model \
             configuration",
            signature.inputs.len(),
            signature.model
        )));
    };
    let mut shape: Shape = if signature.batches() { smallvec![1] } else { Shape::new() };
    let data = match spec.datatype.byte_size() {
        None => {
            if spec.dims[..] != [1] {
                return Err(Error::invalid(format!(
                    "{prefix}For BYTE datatype raw input '{}', the model must have input shape [1]",
                    spec.name
                )));
            }
            shape.push(1);
            // The only copy of a body, because the length must precede the string.
            let mut raw = Vec::new();
            allowance::grow_by(&mut raw, body.len() + 4)?;
            strings::push(&mut raw, &body);
            Bytes::from(raw)
        }
        Some(_) => {
            shape = raw_shape(signature, spec, body.len())?;
            body
        }
    };
    debug_assert!(spec.datatype != DataType::Bytes || shape.last() == Some(&1));
    Ok(InferRequest {
        inputs: smallvec![InputTensor {
            name: spec.name.clone(),
            datatype: Some(spec.datatype),
            shape,
            data: data.into(),
        }],
        default_form: OutputForm { binary: true, classification: 0, anywhere: false },
        ..InferRequest::default()
    })
}

/// The shape of an input that is not BYTES, with a batch dimension of 1, from the bytes of its contents.
///
/// # Errors
/// INVALID_ARG: more than one variable dimension, or bytes that fill no shape.
pub(crate) fn raw_shape(signature: &Signature, spec: &InputSpec, bytes: usize) -> Result<Shape> {
    let prefix = IdPrefix("");
    let size = spec.datatype.byte_size().unwrap_or(1);
    let mut shape: Shape = if signature.batches() { smallvec![1] } else { Shape::new() };
    if spec.dims.iter().filter(|&&d| d == -1).count() > 1 {
        return Err(Error::invalid(format!(
            "{prefix}The shape of the raw input '{}' can not be deduced because there are more than one \
             variable-sized dimension",
            spec.name
        )));
    }
    let fixed: Shape = spec.dims.iter().copied().filter(|&d| d != -1).collect();
    let row = element_count(&fixed).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX).saturating_mul(size);
    let variable = bytes.checked_div(row).unwrap_or(0);
    shape.extend(spec.dims.iter().map(|&d| if d == -1 { variable as i64 } else { d }));
    let has_variable = fixed.len() < spec.dims.len();
    let expected = if has_variable { row.saturating_mul(variable) } else { row };
    if expected != bytes {
        // In the reference the tensor has no name yet at this check.
        return Err(signature.byte_size_error(&prefix, "raw_input", expected as u64, bytes));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::super::parse_infer;
    use super::*;
    use crate::testing::{NoRegions, identity, signature};

    fn check(signature: &Signature, body: &'static [u8], expected: Result<&[i64], &str>) {
        let limits = Limits { input_bytes_max: 60, ..Limits::default() };
        let got = parse_infer(&Bytes::from_static(body), Some(0), signature, &NoRegions, &limits);
        let got = got.and_then(|mut r| signature.check(&mut r).map(|_| r.inputs[0].shape.clone()));
        assert_eq!(got.as_ref().map(|s| &s[..]).map_err(Error::message), expected);
    }

    #[test]
    fn p079_the_shape_follows_from_the_size() {
        let fp32 = identity("ident_fp32", 4, DataType::Fp32);
        check(&fp32, &[0; 12], Ok(&[1, 3]));
        check(&fp32, b"", Ok(&[1, 0]));
        check(
            &fp32,
            &[0; 7],
            Err("[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'ident_fp32'. \
                 Expected 4, got 7"),
        );
        let threed = signature("threed", 2, &[("INPUT0", DataType::Int32, &[2, -1, 3])], &[]);
        check(&threed, &[0; 48], Ok(&[1, 2, 2, 3]));
        check(
            &threed,
            &[0; 52],
            Err("[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'threed'. \
                 Expected 48, got 52"),
        );
        check(&signature("s", 2, &[("X", DataType::Bytes, &[1])], &[]), b"hello", Ok(&[1, 1]));
    }

    #[test]
    fn p079_errors_have_their_texts() {
        check(
            &identity("ident_string", 4, DataType::Bytes),
            b"hello",
            Err("[request id: <id_unknown>] For BYTE datatype raw input 'INPUT0', the model must have input shape [1]"),
        );
        check(
            &signature("vardims", 0, &[("X", DataType::Fp32, &[-1]), ("Y", DataType::Fp32, &[-1])], &[]),
            &[0; 24],
            Err("[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 \
                 inputs in 'vardims' model configuration"),
        );
        check(
            &signature("m", 0, &[("X", DataType::Fp32, &[-1, -1])], &[]),
            &[0; 24],
            Err("[request id: <id_unknown>] The shape of the raw input 'X' can not be deduced because there are more \
                 than one variable-sized dimension"),
        );
        check(
            &identity("id", 4, DataType::Int32),
            &[0; 64],
            Err("Raw input has a byte_size (64 bytes) that exceeds the maximum allowed value of 60 bytes. Use \
                 --http-max-input-size to increase the limit."),
        );
    }
}
