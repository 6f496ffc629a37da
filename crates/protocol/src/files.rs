//! Files as requests: a body that is a picture, a sound, a text or other bytes, or a form with such files, instead of
//! JSON. Not in Triton, which reads every body without a header length as JSON and refuses these.
//!
//! A body that begins with `{` is never a file, whatever its content type is: Triton's clients send JSON with any.

mod form;

use crate::check::{NameSet, duplicate_input};
use crate::generate::Mapping;
use crate::http::{Limits, raw_shape, read_parameter, request_id};
use crate::infer::InferRequest;
use crate::json::{Value, write_string};
use crate::signature::{InputSpec, Signature};
use bytes::Bytes;
use form::{FormField, Parts};
use smallvec::SmallVec;
use tensor::{Data, DataType, Error, Name, Result, Shape, allowance, strings};

/// How the files of a body are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// The body is one file.
    File,
    /// `multipart/form-data` with this boundary.
    Form(Box<[u8]>),
}

impl Media {
    /// The form of a body without `Inference-Header-Content-Length`; `None` if it is read as JSON.
    ///
    /// # Errors
    /// INVALID_ARG for a form without a usable boundary.
    #[inline]
    pub fn of<'a>(body: &[u8], content_type: impl FnOnce() -> Option<&'a [u8]>) -> Result<Option<Self>> {
        match body.first() {
            None | Some(b'{') => Ok(None),
            Some(_) => content_type().map_or(Ok(None), |value| Self::of_type(body, value)),
        }
    }

    fn of_type(body: &[u8], content_type: &[u8]) -> Result<Option<Self>> {
        if body.trim_ascii_start().first() == Some(&b'{') {
            return Ok(None);
        }
        let media = content_type.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let is_file = [&b"image/"[..], b"audio/", b"video/"].iter().any(|kind| media.starts_with(kind))
            || matches!(&media[..], b"application/octet-stream" | b"application/pdf" | b"text/plain");
        match &media[..] {
            b"multipart/form-data" => form::boundary(content_type).map(|boundary| Some(Self::Form(boundary))),
            _ => Ok(is_file.then_some(Self::File)),
        }
    }
}

/// Makes a request of a body of files. Contents of inputs that are not BYTES stay slices of the body.
///
/// A field goes to the input of its name. A file of another name goes to the only input that can take it, a text of
/// another name is a parameter. Several fields of one name are rows of a batch. Outputs are JSON values, unless the
/// client `wants_binary` or the form has `binary_data_output`.
///
/// # Errors
/// INVALID_ARG: the body is too large or not a form, a file has no input, or its contents do not fit the input.
pub fn parse_files(
    body: &Bytes,
    media: &Media,
    wants_binary: bool,
    signature: &Signature,
    limits: &Limits,
) -> Result<InferRequest> {
    if body.len() > limits.input_bytes_max {
        return Err(Error::invalid(format!(
            "file body of {} bytes exceeds the maximum allowed input size of {} bytes. Use --http-max-input-size to \
             increase the limit.",
            body.len(),
            limits.input_bytes_max
        )));
    }
    let mut reader = Reader { signature, files: SmallVec::new(), keys: NameSet::new() };
    let mut mapping = Mapping::new(body, signature, limits);
    mapping.request.default_form.binary = wants_binary;
    match media {
        Media::File => reader.add(reader.only_input()?, body.clone(), true),
        Media::Form(boundary) => {
            for (i, part) in Parts::new(body, boundary).enumerate() {
                limits.check_entries(i + 1, "fields")?;
                reader.part(part?, &mut mapping.request)?;
            }
        }
    }
    let files = std::mem::take(&mut reader.files);
    for given in files {
        reader.input(given, &mut mapping)?;
    }
    Ok(mapping.request)
}

/// The fields for one input, in order.
struct Given<'a> {
    spec: &'a InputSpec,
    rows: SmallVec<[Bytes; 1]>,
    /// Files with the bytes of a tensor, rather than texts with its values.
    is_file: bool,
    /// One was a file, another a text.
    is_mixed: bool,
}

struct Reader<'a> {
    signature: &'a Signature,
    files: SmallVec<[Given<'a>; 2]>,
    /// Keys of the parameters so far.
    keys: NameSet<Bytes>,
}

impl<'a> Reader<'a> {
    fn part(&mut self, part: FormField, request: &mut InferRequest) -> Result<()> {
        let named = self.signature.inputs.iter().find(|spec| spec.name.as_bytes() == &*part.name);
        match named {
            Some(spec) => self.add(spec, part.contents, part.is_file),
            None if part.is_file => self.add(self.only_input()?, part.contents, true),
            None => self.parameter(&part, request)?,
        }
        Ok(())
    }

    fn add(&mut self, spec: &'a InputSpec, contents: Bytes, is_file: bool) {
        match self.files.iter_mut().find(|given| std::ptr::eq(given.spec, spec)) {
            Some(given) => {
                given.is_mixed |= given.is_file != is_file;
                given.rows.push(contents);
            }
            None => {
                let rows = std::iter::once(contents).collect();
                self.files.push(Given { spec, rows, is_file, is_mixed: false });
            }
        }
    }

    /// The input for a file that names none: the only one of BYTES, or the only one that a request must have.
    fn only_input(&self) -> Result<&'a InputSpec> {
        let inputs = &self.signature.inputs;
        let only = |is: &dyn Fn(&InputSpec) -> bool| {
            let mut those = inputs.iter().filter(|spec| is(spec));
            those.next().filter(|_| those.next().is_none())
        };
        let is_bytes = |spec: &InputSpec| spec.datatype == DataType::Bytes;
        only(&|spec| is_bytes(spec) && !spec.optional)
            .or_else(|| only(&is_bytes))
            .or_else(|| only(&|spec| !spec.optional).filter(|_| !inputs.iter().any(is_bytes)))
            .ok_or_else(|| {
                let names: Vec<_> =
                    inputs.iter().map(|spec| format!("'{}' ({})", spec.name, spec.datatype.name())).collect();
                Error::invalid(format!(
                    "a file without the name of an input, for model '{}', which has the inputs {}: send a form with a \
                     field of that name (curl -F 'INPUT=@FILE')",
                    self.signature.model,
                    names.join(", ")
                ))
            })
    }

    /// A text that names no input: a member of `parameters`, or the id.
    fn parameter(&mut self, part: &FormField, request: &mut InferRequest) -> Result<()> {
        let key = Name::from_utf8_lossy(part.name.clone().into());
        // The first of duplicates counts, as in JSON.
        if !self.keys.insert(key.bytes().clone()) {
            return Ok(());
        }
        let is_plain = |value: Value<'_>| value.number().is_some() || value.as_bool().is_ok();
        let json = match Value::parse(&part.contents) {
            Ok(value) if is_plain(value) && key.as_str() != "id" => part.contents.clone(),
            _ => {
                let mut json = Vec::new();
                write_string(&mut json, &part.contents);
                json.into()
            }
        };
        let value = Value::parse(&json)?;
        if key.as_str() == "id" {
            request.id = request_id(value, &json)?;
            return Ok(());
        }
        read_parameter(key, value, request, &json)
    }

    fn input(&self, given: Given<'_>, mapping: &mut Mapping<'_>) -> Result<()> {
        let Given { spec, rows, is_file, is_mixed } = given;
        if is_mixed {
            return Err(Error::invalid(format!("input '{}' has files and texts, expected one kind", spec.name)));
        }
        if spec.datatype != DataType::Bytes && !is_file {
            let [text] = &rows[..] else { return Err(duplicate_input(&mapping.request.id, &spec.name)) };
            let value = Value::parse(text);
            let value = value.map_err(|e| e.prefixed(format_args!("field '{}': expected JSON values: ", spec.name)))?;
            return mapping.tensor(spec, value);
        }
        let (shape, data) =
            if spec.datatype == DataType::Bytes { self.elements(spec, &rows)? } else { self.raw(spec, &rows)? };
        mapping.push(spec, shape, data);
        Ok(())
    }

    /// Each file is an element of a BYTES tensor: the outermost variable dimension, which is the batch if there is one,
    /// counts them.
    fn elements(&self, spec: &InputSpec, rows: &[Bytes]) -> Result<(Shape, Data)> {
        let mut shape = self.signature.full_shape(&spec.dims);
        let mut left = rows.len() as i64;
        for &fixed in shape.iter().filter(|&&dim| dim != -1) {
            if left.checked_rem(fixed).is_none_or(|rest| rest != 0) {
                return Err(self.unfit(spec, rows.len()));
            }
            left /= fixed;
        }
        for dim in shape.iter_mut().filter(|dim| **dim == -1) {
            *dim = std::mem::replace(&mut left, 1);
        }
        if left != 1 {
            return Err(self.unfit(spec, rows.len()));
        }
        // The only copy of a file, because its length must precede it.
        let mut raw = Vec::new();
        allowance::grow_by(&mut raw, rows.iter().map(|row| row.len() + 4).sum())?;
        for row in rows {
            strings::push(&mut raw, row);
        }
        Ok((shape, Data::Bytes(raw.into())))
    }

    fn unfit(&self, spec: &InputSpec, files: usize) -> Error {
        let shape = tensor::ShapeDisplay(&self.signature.full_shape(&spec.dims)).to_string();
        let (name, model) = (&spec.name, &self.signature.model);
        let found = if files == 1 { "1 file does".to_owned() } else { format!("{files} files do") };
        let advice = if files > 1 && !self.signature.batches() {
            "; the model does not batch: send each file in a request of its own"
        } else {
            ""
        };
        Error::invalid(format!(
            "input '{name}' of model '{model}' has the shape {shape}, which {found} not fill{advice}"
        ))
    }

    /// Each file is a row with the bytes of a tensor.
    fn raw(&self, spec: &InputSpec, rows: &[Bytes]) -> Result<(Shape, Data)> {
        let Some(first) = rows.first() else { return Err(self.unfit(spec, 0)) };
        let mut shape = raw_shape(self.signature, spec, first.len())?;
        if let Some(other) = rows.iter().find(|row| row.len() != first.len()) {
            return Err(Error::invalid(format!(
                "input '{}' has files of {} and {} bytes: the rows of a batch have one size",
                spec.name,
                first.len(),
                other.len()
            )));
        }
        match (rows, shape.first_mut()) {
            ([row], _) => return Ok((shape, Data::Bytes(row.clone()))),
            (_, Some(batch)) if self.signature.batches() => *batch = rows.len() as i64,
            _ => return Err(self.unfit(spec, rows.len())),
        }
        let mut raw = Vec::new();
        allowance::grow_by(&mut raw, rows.len() * first.len())?;
        rows.iter().for_each(|row| raw.extend_from_slice(row));
        Ok((shape, Data::Bytes(raw.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::Parameter;
    use crate::testing::signature;

    fn limits() -> Limits {
        Limits { input_bytes_max: 4096, ..Limits::default() }
    }

    /// A form of fields: name, whether it is a file, contents.
    fn form(fields: &[(&str, bool, &[u8])]) -> Bytes {
        let mut body = Vec::new();
        for (name, is_file, contents) in fields {
            let file = if *is_file { "; filename=\"f.bin\"" } else { "" };
            body.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes());
            body.extend_from_slice(contents);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--b--\r\n");
        body.into()
    }

    fn read(body: &Bytes, content_type: &str, signature: &Signature) -> Result<InferRequest> {
        let media = Media::of(body, || Some(content_type.as_bytes()))?.expect("a body with files");
        parse_files(body, &media, false, signature, &limits())
    }

    /// Name, shape and contents of each input.
    fn inputs(request: &InferRequest) -> Vec<(&str, &[i64], Vec<u8>)> {
        request.inputs.iter().map(|i| (i.name.as_str(), &i.shape[..], i.data.to_vec().unwrap())).collect()
    }

    const FORM: &str = "multipart/form-data; boundary=b";

    #[test]
    fn json_keeps_its_meaning_under_any_content_type() {
        let of = |body: &str, content_type: Option<&'static str>| {
            Media::of(body.as_bytes(), || content_type.map(str::as_bytes)).unwrap()
        };
        for content_type in [FORM, "image/jpeg", "application/octet-stream", "text/plain"] {
            assert_eq!(of("{}", Some(content_type)), None);
            assert_eq!(of(" \n{}", Some(content_type)), None);
            assert_eq!(of("", Some(content_type)), None);
            assert!(of("x", Some(content_type)).is_some());
        }
        assert_eq!(of("x", Some("Image/PNG; a=b")), Some(Media::File));
        for content_type in ["application/json", "application/x-www-form-urlencoded", "x"] {
            assert_eq!(of("x", Some(content_type)), None);
        }
        assert_eq!(of("x", None), None);
    }

    #[test]
    fn a_file_is_one_element_of_the_only_bytes_input() {
        let body = Bytes::from_static(b"\xff\xd8abc");
        for (batch, dims, shape) in
            [(0, &[-1][..], &[1][..]), (0, &[1], &[1]), (8, &[1], &[1, 1]), (8, &[-1], &[1, 1]), (0, &[], &[])]
        {
            let model = signature("m", batch, &[("RAW", DataType::Bytes, dims)], &[]);
            let request = read(&body, "image/jpeg", &model).unwrap();
            assert_eq!(inputs(&request), [("RAW", shape, b"\x05\0\0\0\xff\xd8abc".to_vec())]);
            assert!(!request.default_form.binary);
        }
        let mut both = signature("m", 0, &[("A", DataType::Bytes, &[1]), ("B", DataType::Bytes, &[1])], &[]);
        let error = read(&body, "image/jpeg", &both).unwrap_err();
        assert_eq!(
            error.message(),
            "a file without the name of an input, for model 'm', which has the inputs 'A' (BYTES), 'B' (BYTES): send a \
             form with a field of that name (curl -F 'INPUT=@FILE')"
        );
        both.inputs[0].optional = true;
        assert_eq!(read(&body, "image/jpeg", &both).unwrap().inputs[0].name.as_str(), "B");
        let numbers = signature("m", 4, &[("X", DataType::Uint16, &[-1, 2])], &[]);
        let request = read(&Bytes::from_static(&[1; 8]), "application/octet-stream", &numbers).unwrap();
        assert_eq!(inputs(&request), [("X", &[1, 2, 2][..], vec![1; 8])]);
    }

    #[test]
    fn fields_are_inputs_rows_and_parameters() {
        let model = signature(
            "m",
            4,
            &[("IMAGE", DataType::Bytes, &[1]), ("SIZE", DataType::Int32, &[2]), ("RAW", DataType::Uint8, &[-1])],
            &[],
        );
        let body = form(&[
            ("file", true, b"a"),
            ("IMAGE", true, b"bc"),
            ("SIZE", false, b"[640, 480]"),
            ("RAW", true, b"xyz"),
            ("threshold", false, b"0.5"),
            ("top", false, b"3"),
            ("name", false, b"a \"cat\""),
            ("top", false, b"4"),
            ("priority", false, b"2"),
            ("binary_data_output", false, b"true"),
            ("id", false, b"7"),
        ]);
        let request = read(&body, FORM, &model).unwrap();
        assert_eq!(
            inputs(&request),
            [
                ("IMAGE", &[2, 1][..], b"\x01\0\0\0a\x02\0\0\0bc".to_vec()),
                ("SIZE", &[1, 2], vec![128, 2, 0, 0, 224, 1, 0, 0]),
                ("RAW", &[1, 3], b"xyz".to_vec()),
            ]
        );
        let parameters: Vec<_> = request.parameters.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
        assert_eq!(
            parameters,
            [
                ("threshold", Parameter::Double(0.5)),
                ("top", Parameter::Int(3)),
                ("name", Parameter::String(Name::from_static("a \"cat\""))),
            ]
        );
        assert_eq!((request.id.as_str(), request.priority, request.default_form.binary), ("7", 2, true));
    }

    #[test]
    fn rows_are_one_kind_and_fill_the_shape() {
        let model = signature("m", 0, &[("A", DataType::Bytes, &[3]), ("X", DataType::Fp32, &[-1])], &[]);
        let check = |fields: &[(&str, bool, &[u8])], expected: &str| {
            assert_eq!(read(&form(fields), FORM, &model).unwrap_err().message(), expected);
        };
        let a: (&str, bool, &[u8]) = ("A", true, b"a");
        assert_eq!(inputs(&read(&form(&[a, a, a]), FORM, &model).unwrap())[0].1, [3]);
        check(&[a], "input 'A' of model 'm' has the shape [3], which 1 file does not fill");
        check(
            &[a, a],
            "input 'A' of model 'm' has the shape [3], which 2 files do not fill; the model does not batch: send each \
             file in a request of its own",
        );
        check(&[a, ("A", false, b"b")], "input 'A' has files and texts, expected one kind");
        let x: (&str, bool, &[u8]) = ("X", true, &[0; 4]);
        check(
            &[x, x],
            "input 'X' of model 'm' has the shape [-1], which 2 files do not fill; the model does not batch: send each \
             file in a request of its own",
        );
        check(&[x, ("X", true, &[0; 8])], "input 'X' has files of 4 and 8 bytes: the rows of a batch have one size");
        check(
            &[("X", false, b"[1")],
            "field 'X': expected JSON values: failed to parse the request JSON buffer: Missing a comma or ']' after an \
             array element. at 2",
        );
        check(
            &[("A", true, &[0; 5000])],
            "file body of 5076 bytes exceeds the maximum allowed input size of 4096 bytes. Use --http-max-input-size \
             to increase the limit.",
        );
    }
}
