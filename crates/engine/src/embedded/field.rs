//! Numbers in bytes: little-endian, at a fixed place. Whoever calls has checked that the bytes are there.

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

pub(super) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    let mut field = [0; 16];
    field.copy_from_slice(&bytes[at..at + 16]);
    u128::from_le_bytes(field)
}

/// Appends numbers in the same form.
pub(super) fn put<const N: usize>(out: &mut Vec<u8>, fields: [u64; N]) {
    for field in fields {
        out.extend_from_slice(&field.to_le_bytes());
    }
}
