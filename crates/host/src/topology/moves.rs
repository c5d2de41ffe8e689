//! Where a card could move: from a host bridge that carries too much to one that has room.
//!
//! A card is what shares one slot: drives behind one root port, or behind root ports that differ only in
//! their function number (a slot split into several links).

use super::{Kind, Move, Topology, flow};
use crate::facts::pcie::is_address;
use crate::facts::pcie::path::class_of;
use crate::root::Root;
use crate::target::last;

/// Devices and buses looked at; no host has more.
const DEVICES_MAX: usize = 65_536;

/// A host bridge as a place for cards.
struct Place {
    name: String,
    needed: u64,
    /// Other cards on it, in words.
    others: Vec<String>,
}

/// The best move for each bridge that saturates, if any raises the ceiling.
pub(super) fn find(root: &Root, topology: &Topology) -> Vec<Move> {
    let is_crowded = |&&index: &&usize| {
        let vertex = &topology.vertices[index];
        vertex.kind == Kind::HostBridge && vertex.edge.drives > 1
    };
    let crowded: Vec<usize> = topology.saturated.iter().filter(is_crowded).copied().collect();
    if crowded.is_empty() {
        return Vec::new();
    }
    let places = places(root, topology);
    crowded.iter().filter_map(|&bridge| best_move(topology, bridge, &places)).collect()
}

fn best_move(topology: &Topology, bridge: usize, places: &[Place]) -> Option<Move> {
    let from = &topology.vertices[bridge];
    let limit = from.edge.now?;
    let cards = cards(topology, bridge);
    if cards.len() < 2 {
        return None;
    }
    let options = cards.iter().flat_map(|card| places.iter().map(move |place| (card, place)));
    let fitting =
        options.filter(|(card, place)| place.name != from.id && place.needed + card.needed <= limit);
    // The larger card relieves more; of places the one with fewer other things on it.
    let (card, place) = fitting
        .max_by_key(|(card, place)| (card.needed, std::cmp::Reverse((place.needed, place.others.len()))))?;
    // The card leaves a full bridge: the rest there and the card itself arrive as far as they came before.
    let rest = from.edge.needed - card.needed;
    let after = topology.ceiling - from.edge.carried + rest.min(limit).min(card.rest_arrives) + card.arrives;
    (after > topology.ceiling).then(|| Move {
        disks: card.disks.clone(),
        from: from.id.clone(),
        to: place.name.clone(),
        instead_of: place.others.join(", "),
        ceiling: after,
    })
}

/// Drives that share a slot.
struct Card {
    disks: Vec<String>,
    needed: u64,
    /// What of it reaches the bridge.
    arrives: u64,
    /// What the other cards of the bridge bring to it.
    rest_arrives: u64,
}

fn cards(topology: &Topology, bridge: usize) -> Vec<Card> {
    let mut slots: Vec<(&str, Vec<usize>)> = Vec::new();
    for index in topology.below(Some(bridge)) {
        let id = &topology.vertices[index].id;
        let slot = id.rsplit_once('.').map_or(id.as_str(), |(slot, _)| slot);
        match slots.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, ports)) => ports.push(index),
            None => slots.push((slot, vec![index])),
        }
    }
    let sum = |ports: &[usize], pick: fn(&super::Edge) -> u64| -> u64 {
        ports.iter().map(|&port| pick(&topology.vertices[port].edge)).sum()
    };
    let all: u64 = slots.iter().map(|(_, ports)| sum(ports, |edge| edge.carried)).sum();
    slots
        .iter()
        .map(|(_, ports)| {
            let arrives = sum(ports, |edge| edge.carried);
            let mut disks = Vec::new();
            ports.iter().for_each(|&port| disks_below(topology, port, &mut disks));
            Card { disks, needed: sum(ports, |edge| edge.needed), arrives, rest_arrives: all - arrives }
        })
        .collect()
}

fn disks_below(topology: &Topology, index: usize, disks: &mut Vec<String>) {
    disks.extend(topology.vertices[index].drive.iter().flat_map(|drive| drive.disks.clone()));
    topology.below(Some(index)).for_each(|below| disks_below(topology, below, disks));
}

/// Every host bridge that has ports a card could stand behind.
fn places(root: &Root, topology: &Topology) -> Vec<Place> {
    let addresses = root.list("/sys/bus/pci/devices");
    let mut places: Vec<Place> = Vec::new();
    for address in addresses.value().into_iter().flatten().take(DEVICES_MAX) {
        let Some(folder) = root.resolve(&format!("/sys/bus/pci/devices/{address}")).value().cloned() else {
            continue;
        };
        let Some(bridge) = folder.split('/').find(|part| part.starts_with("pci") && part.contains(':'))
        else {
            continue;
        };
        if !places.iter().any(|place| place.name == bridge) {
            let needed = topology.vertices.iter().find(|vertex| vertex.id == bridge);
            let needed = needed.map_or(0, |vertex| vertex.edge.needed);
            places.push(Place { name: bridge.to_owned(), needed, others: Vec::new() });
        }
        let behind_port = folder.rsplit_once('/').is_some_and(|(above, _)| is_address(last(above)));
        let what = class_of(root, &folder).and_then(|class| match class >> 8 {
            0x02 => Some("network card"),
            0x03 => Some("graphics card"),
            0x12 => Some("accelerator"),
            _ => None,
        });
        if let Some((what, place)) = what
            .filter(|_| behind_port)
            .zip(places.iter_mut().find(|place| folder.split('/').any(|part| part == place.name)))
        {
            place.others.push(format!("{what} {address}"));
        }
    }
    places
}

/// The ceiling if every link that runs below its possibilities ran as it could, bytes a second.
#[must_use]
pub fn ceiling_with_full_links(topology: &Topology) -> u64 {
    let best = |edge: &super::Edge| edge.possible.max(edge.now);
    let capacities: Vec<Option<u64>> = topology.vertices.iter().map(|vertex| best(&vertex.edge)).collect();
    flow::ceiling_with(topology, &capacities)
}
