//! The places of replicas: away from the host of their primary, and from each other.

use std::collections::BTreeMap;

/// Penalty for a replica at the host of its primary. A replica at the host of another replica counts 1.
const SAME_AS_PRIMARY: usize = 10_000;

/// Number of swaps for each node of the cluster.
const SWAPS_A_NODE: usize = 500;

/// A node of a new cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub host: String,
    /// Index of the primary, for a replica.
    pub primary: Option<usize>,
}

/// The quality of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    Perfect,
    WithReplicas,
    WithPrimary,
}

/// Returns the nodes in the order of an allocation: one of each host in turn.
pub fn interleaved(places: &[Place]) -> Vec<usize> {
    let mut hosts: Vec<&str> = Vec::new();
    let mut turn: BTreeMap<&str, usize> = BTreeMap::new();
    let mut order: Vec<(usize, usize, usize)> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let host = hosts.iter().position(|host| *host == place.host).unwrap_or_else(|| {
            hosts.push(&place.host);
            hosts.len() - 1
        });
        let turn = turn.entry(&place.host).or_default();
        order.push((*turn, host, index));
        *turn += 1;
    }
    order.sort_unstable();
    order.into_iter().map(|(_, _, index)| index).collect()
}

/// Gives replicas to the primaries, at other hosts as far as possible. Returns the pairs of replica and primary in
/// order, and the number of pairs before the first extra replica.
pub fn assign(places: &[Place], order: &[usize], masters: usize, replicas: usize) -> (Vec<(usize, usize)>, usize) {
    let (masters, free) = order.split_at(masters.min(order.len()));
    let mut free: Vec<usize> = free.to_vec();
    // The rotation leads to replicas at other hosts more often.
    let turn = usize::from(!free.is_empty());
    free.rotate_left(turn);
    let mut pairs = Vec::new();
    let mut give = |master: usize, pairs: &mut Vec<(usize, usize)>| {
        let elsewhere = free.iter().position(|&node| places[node].host != places[master].host);
        if !free.is_empty() {
            pairs.push((free.remove(elsewhere.unwrap_or(0)), master));
        }
    };
    for &master in masters {
        (0..replicas).for_each(|_| give(master, &mut pairs));
    }
    let regular = pairs.len();
    for &master in masters {
        give(master, &mut pairs);
    }
    (pairs, regular)
}

/// Swaps the primaries of replicas at random while that improves the places. Returns `None` if they were perfect.
pub fn optimize(places: &mut [Place], mut random: impl FnMut(usize) -> usize) -> Option<Affinity> {
    if score(places).0 == 0 {
        return None;
    }
    for _ in 0..SWAPS_A_NODE * places.len() {
        let (before, offenders) = score(places);
        if offenders.is_empty() {
            break;
        }
        let first = offenders[random(offenders.len())];
        let others: Vec<usize> =
            (0..places.len()).filter(|&node| node != first && places[node].primary.is_some()).collect();
        if others.is_empty() {
            break;
        }
        let second = others[random(others.len())];
        let swap = |places: &mut [Place]| {
            let primary = places[first].primary;
            places[first].primary = places[second].primary;
            places[second].primary = primary;
        };
        swap(places);
        // An equal score is kept: the best allocation may need several swaps.
        if score(places).0 > before {
            swap(places);
        }
    }
    Some(match score(places).0 {
        0 => Affinity::Perfect,
        SAME_AS_PRIMARY.. => Affinity::WithPrimary,
        _ => Affinity::WithReplicas,
    })
}

/// Returns the penalty of an allocation, and a replica at the wrong host for each group of nodes.
fn score(places: &[Place]) -> (usize, Vec<usize>) {
    let mut groups: BTreeMap<(&str, usize), Vec<usize>> = BTreeMap::new();
    for (index, place) in places.iter().enumerate() {
        groups.entry((&place.host, place.primary.unwrap_or(index))).or_default().push(index);
    }
    let (mut penalty, mut offenders) = (0, Vec::new());
    for members in groups.values().filter(|members| members.len() > 1) {
        let has_primary = members.iter().any(|&node| places[node].primary.is_none());
        penalty += if has_primary { SAME_AS_PRIMARY * (members.len() - 1) } else { members.len() };
        offenders.extend(members.iter().find(|&&node| places[node].primary.is_some()));
    }
    (penalty, offenders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(hosts: &str) -> Vec<Place> {
        hosts.chars().map(|host| Place { host: host.to_string(), primary: None }).collect()
    }

    fn allocated(hosts: &str, masters: usize, replicas: usize) -> Vec<Place> {
        let mut places = places(hosts);
        let order = interleaved(&places);
        for (replica, primary) in assign(&places, &order, masters, replicas).0 {
            places[replica].primary = Some(primary);
        }
        places
    }

    #[test]
    fn hosts_take_turns() {
        assert_eq!(interleaved(&places("aaabbc")), [0, 3, 5, 1, 4, 2]);
        assert_eq!(interleaved(&places("aaa")), [0, 1, 2]);
    }

    #[test]
    fn replicas_are_away_from_their_primaries() {
        let places = allocated("aabbcc", 3, 1);
        assert_eq!(score(&places).0, 0);
        assert_eq!(places.iter().filter(|place| place.primary.is_some()).count(), 3);
    }

    /// The allocation of redis-cli for seven nodes of one host with a replica each.
    #[test]
    fn one_host_has_a_fixed_allocation() {
        let places = places("aaaaaaa");
        let order = interleaved(&places);
        assert_eq!(assign(&places, &order, 3, 1), (vec![(4, 0), (5, 1), (6, 2), (3, 0)], 3));
    }

    #[test]
    fn swaps_improve_the_places() {
        let mut number = 0;
        let mut random = |below: usize| {
            number = (number * 5 + 3) % 1013;
            number % below
        };
        let mut places = places("aabbcc");
        // Each replica is at the host of its primary.
        for replica in [1, 3, 5] {
            places[replica].primary = Some(replica - 1);
        }
        assert_eq!(optimize(&mut places, &mut random), Some(Affinity::Perfect));
        assert_eq!(optimize(&mut places, &mut random), None);
        let mut one_host = allocated("aaaaaa", 3, 1);
        assert_eq!(optimize(&mut one_host, &mut random), Some(Affinity::WithPrimary));
    }
}
