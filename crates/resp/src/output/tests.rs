use super::*;

fn bytes(output: &Output) -> Vec<u8> {
    output.slices().collect::<Vec<_>>().concat()
}

fn memory(output: &Output) -> usize {
    output.tail.len() + output.sealed.iter().map(Segment::memory).sum::<usize>()
}

#[test]
fn sent_and_truncated_bytes_are_removed() {
    let large = Arc::new(vec![b'x'; SHARED_BYTES_MIN]);
    let mut output = Output::default();
    output.extend(b"abc");
    let mark = output.mark();
    output.extend(b"def");
    output.extend_shared(large.clone());
    output.extend(b"ghi");
    assert_eq!(output.len(), 9 + large.len());
    output.truncate(mark);
    assert_eq!(output.slices().collect::<Vec<_>>(), [b"abc"]);
    output.extend_shared(large.clone());
    output.extend(b"z");
    for left in (0..output.len()).rev() {
        output.advance(1);
        assert_eq!(output.len(), left);
        assert_eq!(output.slices().map(<[u8]>::len).sum::<usize>(), left);
    }
    assert_eq!(Arc::strong_count(&large), 1);
}

#[test]
fn a_queue_that_is_never_empty_does_not_grow() {
    let mut output = Output::default();
    let mut expected = 0u32;
    for i in 0..20_000u32 {
        // Each round sends as much as it writes, but 400 bytes are always unsent.
        output.extend(&[i; 25].map(u32::to_ne_bytes).concat());
        if i >= 4 {
            let waiting = output.slices().next().unwrap();
            assert_eq!(waiting.first_chunk(), Some(&expected.to_ne_bytes()));
            output.advance(100);
            expected += 1;
        }
    }
    assert_eq!(output.len(), 400);
    assert!(output.tail.capacity() < 4 * SENT_BYTES_MAX, "{}", output.tail.capacity());
}

#[test]
fn a_run_of_one_reply_is_folded_and_other_replies_stay() {
    fn check(replies: &[(&str, usize)], expected_memory_max: usize, expected_segments: usize) {
        let (mut output, mut expected) = (Output::default(), Vec::new());
        for (reply, count) in replies {
            // The replies come in rounds; some rounds end in the middle of a run.
            for _ in 0..*count {
                output.extend(reply.as_bytes());
                expected.extend_from_slice(reply.as_bytes());
                if output.tail.len() > 20_000 {
                    output.fold();
                }
            }
        }
        output.fold();
        assert_eq!(output.len(), expected.len());
        assert!(bytes(&output) == expected, "{replies:?}");
        assert!(output.memory() <= expected_memory_max, "{} {replies:?}", output.memory());
        assert_eq!(output.segments(), expected_segments, "{replies:?}");
    }
    let ok = "+OK\r\n";
    check(&[(ok, 1_000_000)], 5_000, 1);
    check(&[(":1\r\n", 7), (ok, 1_000_000), ("$-1\r\n", 100_000), ("$3\r\na\nb\r\n", 100_000)], 13_000, 4);
    check(&[(ok, 100), (":7\r\n", 100)], 900, 1);
    check(&[("*1\r\n:1\r\n", 10_000)], 80_000, 1);
    check(&[("$70\r\n", 1), (ok, 3)], 20, 1);
    check(&[("+\r\n", 100_000), ("-ERR \n", 100_000)], 9_000, 2);
}

/// Compares a chain with a plain queue of bytes under random operations.
#[test]
fn a_chain_is_a_queue_of_bytes() {
    let mut seed = 1u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let large = Arc::new((0..SHARED_BYTES_MIN as u32 + 5).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    let replies: [&[u8]; 6] = [b"+OK\r\n", b":1\r\n", b"$3\r\nabc\r\n", b"$-1\r\n", b"*2\r\n", b"$5\r\n\n\n+:$\r\n"];
    for _ in 0..300 {
        let (mut output, mut model) = (Output::default(), VecDeque::<u8>::new());
        for _ in 0..below(60) {
            match below(9) {
                0..3 => {
                    let (reply, count) = (replies[below(6) as usize], below(6000) as usize);
                    output.extend(&reply.repeat(count));
                    model.extend(reply.repeat(count));
                }
                3 => {
                    output.extend_shared(large.clone());
                    model.extend(large.iter());
                }
                4 | 5 => output.fold(),
                6 => {
                    let count = below(output.len() as u64 + 1) as usize;
                    output.advance(count);
                    model.drain(..count);
                }
                7 => {
                    let mark = output.mark();
                    output.extend(b"taken back");
                    output.extend_shared(large.clone());
                    output.truncate(mark);
                }
                _ => {
                    let mut other = Output::from(b":2\r\n".repeat(3000));
                    other.fold();
                    other.extend(b"+end\r\n");
                    let runs = output.take_runs();
                    let mut rest = std::mem::replace(&mut output, runs);
                    output.append(&mut rest);
                    let mut first = Output::default();
                    first.append(&mut output);
                    output = first;
                    output.append(&mut other);
                    model.extend(b":2\r\n".repeat(3000));
                    model.extend(b"+end\r\n");
                }
            }
            assert_eq!((output.len(), output.memory()), (model.len(), memory(&output)));
            assert_eq!(output.is_empty(), model.is_empty());
        }
        assert!(bytes(&output) == model.make_contiguous());
    }
}

#[test]
fn spare_memory_moves_between_outputs() {
    let (mut first, mut second, mut spare) = (Output::default(), Output::default(), Vec::new());
    first.extend(&[b'x'; 1000]);
    let block = first.slices().next().unwrap().as_ptr();
    // Not while there are unsent bytes.
    first.give_spare(100, &mut spare, 5000);
    assert_eq!((first.len(), spare.capacity()), (1000, 0));
    first.advance(1000);
    first.give_spare(100, &mut spare, 5000);
    assert!(spare.capacity() >= 1000 && spare.is_empty());
    second.take_spare(&mut spare);
    second.extend(b"y");
    assert_eq!(second.slices().next().unwrap().as_ptr(), block);
    // Unsent bytes stay in place.
    let mut more = Vec::with_capacity(9000);
    second.take_spare(&mut more);
    assert_eq!((second.slices().next().unwrap(), more.capacity()), (&b"y"[..], 9000));
    // Memory above the limit for spare memory is freed.
    let mut large = Output::from(vec![b'x'; 9000]);
    large.advance(9000);
    large.give_spare(100, &mut spare, 5000);
    assert_eq!((large.tail.capacity(), spare.capacity()), (0, 0));
}
