//! Pictures, and outputs of detection networks: the entry points are in the crate, beside what they test.

/// A file of a picture, whose last bytes choose what is made of it.
pub fn picture(data: &[u8]) -> bool {
    vision::fuzz::picture(data);
    vision::picture::PictureFormat::of(data).is_some()
}

/// Outputs of a network in any layout, and settings.
pub fn boxes(data: &[u8]) -> bool {
    vision::boxes::fuzz::boxes(data)
}
