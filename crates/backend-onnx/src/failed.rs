//! Errors of the CUDA and TensorRT providers after which a device may be of no use to this process any more (`device::failure`).
//!
//! The providers say what CUDA said in the text of a status, and in nothing else. The text is only the reason that is told: it quotes names of
//! nodes, which are a model author's words, and cuDNN and cuBLAS hide CUDA's error behind one of their own. The driver says what is true.

use tensor::Error;

/// What follows the words of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    /// The number of a CUDA error. The runtime's are the driver's since CUDA 10.1.
    Number,
    /// An error of a library over CUDA, or none: what CUDA says to it may be anything.
    Nothing,
}

/// Beginnings of what the providers write (`cuda_call.cc`, `cuda_common.h`, `tensorrt_execution_provider.cc` of ONNX Runtime 1.4 to 1.30).
const TEXTS: [(&str, Says); 14] = [
    ("CUDA failure ", Says::Number),
    ("CUDA error ", Says::Nothing),
    ("CUBLAS failure ", Says::Nothing),
    ("CUBLAS error ", Says::Nothing),
    ("CUDNN failure ", Says::Nothing),
    ("CUDNN_FE failure ", Says::Nothing),
    ("CUDNN error ", Says::Nothing),
    ("CUFFT failure ", Says::Nothing),
    ("CUFFT error ", Says::Nothing),
    ("CURAND failure ", Says::Nothing),
    ("CUSPARSE failure ", Says::Nothing),
    ("NCCL failure ", Says::Nothing),
    ("TensorRT EP execution context enqueue failed", Says::Nothing),
    ("TensorRT EP failed to ", Says::Nothing),
];

/// Most bytes of a text that become the reason of a failure.
const REASON_BYTES_MAX: usize = 300;

/// The part of an error's text by which a device may have failed; `None` where it is no such error.
fn suspicion(text: &str) -> Option<&str> {
    let found = TEXTS.iter().flat_map(|&(words, says)| text.match_indices(words).map(move |(at, _)| (at, words, says)));
    let told = found.filter_map(|(at, words, says)| {
        let rest = text.get(at + words.len()..)?;
        let number = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let counts = says == Says::Nothing || number.is_none_or(device::failure::is_sticky);
        counts.then_some(at)
    });
    let reason = text.get(told.min()?..)?;
    // What follows are the machine's name, and a line of the provider's source.
    let reason = reason.split(" ; hostname=").next().unwrap_or(reason).trim_end();
    let end = reason.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= REASON_BYTES_MAX).last();
    reason.get(..end.unwrap_or(0))
}

/// Has the driver asked about a device on which something of the runtime failed, whatever it said: that also waits for what a run that was given
/// up left under way, which may still read and write memory that is about to be given back. The error as it is to go on: UNAVAILABLE where
/// the device is lost.
#[cold]
pub(crate) fn noticed(device: u32, error: Error) -> Error {
    let reason = suspicion(error.message()).unwrap_or("a run failed");
    if device::suspect(device, &format!("ONNX Runtime: {reason}")) {
        return device::failure::check(device).err().unwrap_or(error);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_errors_of_the_providers_are_told_apart_by_their_texts() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(suspicion(text), expected, "{text}");
        // As they are written by some release.
        check(
            "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=a ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/gpu_data_transfer.cc ; line=63 ; expr=cudaMemcpyAsync(dst_data, src_data); ",
            Some("CUDA failure 700: an illegal memory access was encountered ; GPU=0"),
        );
        check(
            "onnx runtime error 6: Non-zero status code returned while running Add node. Name:'x' Status Message: CUDA failure 719: unspecified launch failure ; GPU=1 ; hostname=a ; expr=cudaStreamSynchronize(s);",
            Some("CUDA failure 719: unspecified launch failure ; GPU=1"),
        );
        check(
            "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:114 … CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED ; GPU=0 ; hostname=egg ; line=121",
            Some("CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED ; GPU=0"),
        );
        check(
            "CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED ; GPU=0 ; hostname=a",
            Some("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED ; GPU=0"),
        );
        check("CUDA error executing cudaMemcpy(to, from, 52)", Some("CUDA error executing cudaMemcpy(to, from, 52)"));
        check(
            "Name:'TRTKernel_0' Status Message: TensorRT EP execution context enqueue failed.",
            Some("TensorRT EP execution context enqueue failed."),
        );
        // What costs a request and nothing else.
        check("CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; expr=cudaMalloc((void**)&p, size);", None);
        check("CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=a", None);
        check(
            "Non-zero status code returned while running Reshape node. Name:'CUDA' Status Message: wrong shape",
            None,
        );
        check("Exiting due to terminate flag being set to true.", None);
        // The first that counts, and what is long is cut at a character.
        check(
            "CUDA failure 2: out of memory ; GPU=0 ; then CUDA failure 710: device-side assert triggered",
            Some("CUDA failure 710: device-side assert triggered"),
        );
        assert!(suspicion(&format!("CUDNN error {}", "é".repeat(400))).is_some_and(|reason| reason.len() <= 300));
    }

    #[test]
    fn device_errors_whose_text_the_driver_does_not_confirm_stay_what_they_were() {
        // There is no driver here, or one that works.
        let error = Error::internal("Name:'CUDA failure 700: mine' Status Message: wrong shape");
        assert_eq!(noticed(77, error.clone()), error);
        assert_eq!(device::failure::failed(77), None);
    }
}
