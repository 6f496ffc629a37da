//! Shows an answer to the script that drives the bench, which compares it with what the model must return.

/// The bytes as hexadecimal, one line.
pub fn print(answer: &[u8]) {
    let hex: String = answer.iter().map(|b| format!("{b:02x}")).collect();
    println!("{hex}");
}
