//! Detects errors of the CUDA and TensorRT providers that may mean a lost device (`device::failure`).
//!
//! CUDA's error appears only in a provider's text. That text is only the reported reason, because it quotes node names,
//! which a model's author chooses, and cuDNN and cuBLAS replace CUDA's error by one of their own. The driver decides.

use tensor::Error;

/// Part of a provider's text that follows its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CodeAfter {
    /// The number of a CUDA error. Since CUDA 10.1, the runtime's numbers are the driver's.
    Number,
    /// No CUDA error number: an error of a library on top of CUDA, which may hide any CUDA error.
    Nothing,
}

/// Prefixes of provider errors (`cuda_call.cc`, `cuda_common.h`, `tensorrt_execution_provider.cc`, 1.4 to 1.30).
const TEXTS: [(&str, CodeAfter); 14] = [
    ("CUDA failure ", CodeAfter::Number),
    ("CUDA error ", CodeAfter::Nothing),
    ("CUBLAS failure ", CodeAfter::Nothing),
    ("CUBLAS error ", CodeAfter::Nothing),
    ("CUDNN failure ", CodeAfter::Nothing),
    ("CUDNN_FE failure ", CodeAfter::Nothing),
    ("CUDNN error ", CodeAfter::Nothing),
    ("CUFFT failure ", CodeAfter::Nothing),
    ("CUFFT error ", CodeAfter::Nothing),
    ("CURAND failure ", CodeAfter::Nothing),
    ("CUSPARSE failure ", CodeAfter::Nothing),
    ("NCCL failure ", CodeAfter::Nothing),
    ("TensorRT EP execution context enqueue failed", CodeAfter::Nothing),
    ("TensorRT EP failed to ", CodeAfter::Nothing),
];

/// Maximum bytes of a text that is kept as the reason of a failure.
const REASON_BYTES_MAX: usize = 300;

/// The part of an error's text that indicates a lost device; `None` for other errors.
fn suspicion(text: &str) -> Option<&str> {
    let found = TEXTS.iter().flat_map(|&(words, says)| text.match_indices(words).map(move |(at, _)| (at, words, says)));
    let starts = found.filter_map(|(at, words, says)| {
        let rest = text.get(at + words.len()..)?;
        let number = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let counts = says == CodeAfter::Nothing || number.is_none_or(device::failure::is_sticky);
        counts.then_some(at)
    });
    let reason = text.get(starts.min()?..)?;
    // The host name and the provider's source line follow.
    let reason = reason.split(" ; hostname=").next().unwrap_or(reason).trim_end();
    let end = reason.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= REASON_BYTES_MAX).last();
    reason.get(..end.unwrap_or(0))
}

/// Asks the driver about a device after any failed run. That also waits for pending work of a cancelled run, which may
/// still access memory that is about to be freed. Returns the error, or UNAVAILABLE if the device is lost.
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
    fn device_errors_of_the_providers_are_distinguished_by_their_texts() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(suspicion(text), expected, "{text}");
        // Texts of actual releases.
        check(
            "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=a ; \
             file=/onnxruntime_src/onnxruntime/core/providers/cuda/gpu_data_transfer.cc ; line=63 ; \
             expr=cudaMemcpyAsync(dst_data, src_data); ",
            Some("CUDA failure 700: an illegal memory access was encountered ; GPU=0"),
        );
        check(
            "onnx runtime error 6: Non-zero status code returned while running Add node. Name:'x' Status Message: \
             CUDA failure 719: unspecified launch failure ; GPU=1 ; hostname=a ; expr=cudaStreamSynchronize(s);",
            Some("CUDA failure 719: unspecified launch failure ; GPU=1"),
        );
        check(
            "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:114 … CUBLAS failure 13: \
             CUBLAS_STATUS_EXECUTION_FAILED ; GPU=0 ; hostname=egg ; line=121",
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
        // Errors that fail only their request.
        check("CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; expr=cudaMalloc((void**)&p, size);", None);
        check("CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=a", None);
        check(
            "Non-zero status code returned while running Reshape node. Name:'CUDA' Status Message: wrong shape",
            None,
        );
        check("Exiting due to terminate flag being set to true.", None);
        // The first relevant error counts, and a long text is cut at a character.
        check(
            "CUDA failure 2: out of memory ; GPU=0 ; then CUDA failure 710: device-side assert triggered",
            Some("CUDA failure 710: device-side assert triggered"),
        );
        assert!(suspicion(&format!("CUDNN error {}", "é".repeat(400))).is_some_and(|reason| reason.len() <= 300));
    }

    #[test]
    fn device_errors_that_the_driver_does_not_confirm_are_unchanged() {
        // This machine has no driver, or a working one.
        let error = Error::internal("Name:'CUDA failure 700: mine' Status Message: wrong shape");
        assert_eq!(noticed(77, error.clone()), error);
        assert_eq!(device::failure::failed(77), None);
    }
}
