//! A captured host whose content is damaged: the first byte chooses the host, the rest what is damaged.
#![no_main]

use overdrive_host::root::garble::garble;
use overdrive_host::{Root, audit};

const HOSTS: [&str; 4] = [
    include_str!("../../fixtures/hosts/reference-virtio.tree"),
    include_str!("../../fixtures/hosts/p4800x-two-socket.tree"),
    include_str!("../../fixtures/hosts/memory-extension.tree"),
    include_str!("../../fixtures/hosts/crypt-behind-vmd.tree"),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let text = garble(HOSTS[usize::from(*first) % HOSTS.len()], rest);
    if let Ok(root) = Root::from_capture(&text) {
        let _ = audit::of_everything(&root);
    }
});
