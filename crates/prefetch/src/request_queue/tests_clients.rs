//! Several clients of one queue.

use super::*;

#[test]
fn what_two_clients_want_is_read_once_and_told_to_both() {
    let (mut queue, mut fx) = new();
    let (small, large) =
        (hint(HintKind::Data, "/a"), Hint { range: 0..9000, ..hint(HintKind::Data, "/a") });
    assert_eq!(small.submit_as(A, &mut queue, &mut fx), Submitted::Queued);
    assert_eq!(small.submit_as(B, &mut queue, &mut fx), Submitted::Merged);
    let look = queue.pop().expect("a lookup");
    assert!(queue.pop().is_none(), "it is looked up once");
    let read =
        queue.looked(look, (found(Class::File { size: 10_000 }), true), &mut fx).expect("a read");
    assert!(told(A, &[small.key()], &fx.done) && told(B, &[small.key()], &fx.done));
    assert!(queue.pop().is_none(), "and read once");
    // While that is under way, one of them wants more, of which some is being read.
    assert_eq!(large.submit_as(B, &mut queue, &mut fx), Submitted::Merged);
    let rest = queue.pop().expect("the rest");
    assert!(matches!(&rest.step, Step::Read { range, .. } if *range == (4096..9000)));
    queue.finish(read, Ok(4096), &mut fx);
    assert!(told(A, &small.keys(), &fx.done) && !told(B, &large.keys(), &fx.done));
    queue.finish(rest, Ok(4904), &mut fx);
    assert!(told(B, &large.keys(), &fx.done));
    let completed: Vec<_> =
        fx.completed.iter().map(|(c, done)| (*c, done.hints, done.bytes)).collect();
    assert_eq!(completed, [(A, 1, 4096), (B, 1, 4096), (B, 1, 4904)]);
    assert!(queue.entries.is_empty() && queue.len() == 0);
}

#[test]
fn a_directory_is_read_once_and_expanded_for_each_that_wishes_so() {
    let (mut queue, mut fx) = new();
    let list = hint(HintKind::Listing, "/d");
    let expand = Hint { flags: EXPAND_NAMES, ..list.clone() };
    list.submit_as(A, &mut queue, &mut fx);
    expand.submit_as(B, &mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    let read = queue.looked(look, (found(Class::Directory), true), &mut fx).expect("a listing");
    assert!(matches!(read.step, Step::List { names: true, .. }));
    assert_eq!(queue.wishes(&read).iter().map(|wish| wish.client).collect::<Vec<_>>(), [B]);
    queue.finish(read, Ok(0), &mut fx);
    assert!(told(A, &list.keys(), &fx.done) && told(B, &list.keys(), &fx.done));
}

#[test]
fn a_read_is_given_up_when_the_last_that_wants_it_strays_or_goes() {
    let (mut queue, mut fx) = new();
    let data = hint(HintKind::Data, "/a");
    data.submit_as(A, &mut queue, &mut fx);
    data.submit_as(B, &mut queue, &mut fx);
    assert_eq!(queue.drop_stale(A, Some(2), &mut fx), 1);
    assert!(fx.forget.iter().all(|(client, ..)| *client == A), "runs are each client's own");
    assert_eq!((queue.len_of(A), queue.len_of(B), queue.len()), (0, 1, 1));
    fx.forget.clear();
    assert_eq!(queue.close_client(B, &mut fx), 1);
    let forgotten: Vec<_> = fx.forget.iter().map(|&(client, key, _)| (client, key)).collect();
    assert!(told(B, &data.keys(), &forgotten));
    assert!(queue.pop().is_none() && queue.entries.is_empty());
}

#[test]
fn one_that_goes_while_its_data_is_read_hears_that_it_is_forgotten_and_no_more() {
    let (mut queue, mut fx) = new();
    let data = hint(HintKind::Data, "/a");
    data.submit_as(A, &mut queue, &mut fx);
    data.submit_as(B, &mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    let read =
        queue.looked(look, (found(Class::File { size: 10_000 }), true), &mut fx).expect("a read");
    fx.done.clear();
    assert_eq!(queue.close_client(A, &mut fx), 1);
    assert_eq!(fx.forget, [(A, data.keys()[0], u32::MAX)], "its name is known already");
    queue.finish(read, Ok(4096), &mut fx);
    assert_eq!(fx.done, [(B, data.keys()[0])]);
    assert_eq!(fx.completed.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [B]);
    assert_eq!(data.submit_as(A, &mut queue, &mut fx), Submitted::Refused);
}

#[test]
fn clients_take_turns_and_what_a_target_waits_for_goes_first() {
    let (mut queue, mut fx) = new();
    queue.set_remote(None, true);
    for n in 0..100 {
        Hint { position: n, ..hint(HintKind::Lookup, &format!("/a/{n}")) }
            .submit_as(A, &mut queue, &mut fx);
    }
    let next =
        |queue: &mut Queue<()>| queue.pop().map(|job| path(&job).to_owned()).unwrap_or_default();
    (0..20).for_each(|_| assert!(next(&mut queue).starts_with("/a/")));
    // One that comes later, and hints from much farther on, is not behind all that.
    for n in 1000..1010 {
        let hint = Hint { position: n, ..hint(HintKind::Lookup, &format!("/b/{n}")) };
        hint.submit_as(B, &mut queue, &mut fx);
    }
    let served: Vec<_> = (0..10).map(|_| next(&mut queue)).collect();
    let of_b = served.iter().filter(|name| name.starts_with("/b/")).count();
    assert!((4..=6).contains(&of_b), "{served:?}");
    Hint { position: 5000, flags: DEMAND, ..hint(HintKind::Lookup, "/c/x") }
        .submit_as(B, &mut queue, &mut fx);
    assert_eq!(next(&mut queue), "/c/x");
    let rest = std::iter::from_fn(|| queue.pop()).count();
    assert_eq!(rest, 110 - 30);
}

#[test]
fn no_client_gets_all_the_room() {
    let (mut queue, mut fx) = sized(1000);
    let mut fill = |client, name: &str| {
        let hints = (0..1000).map(|n| hint(HintKind::Lookup, &format!("/{name}/{n}")));
        hints.filter(|h| h.submit_as(client, &mut queue, &mut fx) == Submitted::Queued).count()
    };
    assert_eq!(fill(A, "a"), 800);
    assert_eq!(fill(B, "b"), 160, "four times as much as is left, with its own");
    assert_eq!(fill(A, "c"), 0);
}
