//! Random functions with system calls in them, of the kinds that compilers make and of the kinds
//! that look like them. They return whatever their registers hold, and touch their own memory only.

use super::Random;
use super::std;
use std::vec;
use std::vec::Vec;

/// Numbers that r12 may hold: calls that ask for what does not change, or that do not exist.
pub(super) const NUMBERS: [u32; 8] = [39, 102, 104, 107, 108, 110, 600, 0x1234];

/// A function, to be put where `at % 64` is what it was made for.
pub(super) struct Generated {
    pub code: Vec<u8>,
    /// Offset of the function's entry.
    pub entry: usize,
}

type Label = usize;

struct Writer<'a> {
    random: &'a mut Random,
    /// Address of the first byte, as far as alignment goes.
    base: usize,
    code: Vec<u8>,
    labels: Vec<Option<usize>>,
    /// Distances to be filled in: where, of how many bytes, to which label.
    open: Vec<(usize, usize, Label)>,
}

// Registers by number. The calls' result, what calls spoil, and what the runner needs (the stack,
// r12 with a number, r15 with the data) are not used freely.
const FREE: [u8; 10] = [2, 3, 5, 6, 7, 8, 9, 10, 13, 14];

pub(super) fn function(random: &mut Random, base: usize) -> Generated {
    loop {
        if let Some(generated) = attempt(random, base) {
            return generated;
        }
    }
}

/// `None` when a short jump came out too long.
fn attempt(random: &mut Random, base: usize) -> Option<Generated> {
    let mut w = Writer { random, base, code: vec![], labels: vec![], open: vec![] };
    // What is before a function is another one.
    for _ in 0..12 + w.random.below(20) {
        w.harmless();
    }
    w.end();
    w.padding();
    let entry = w.code.len();
    let mut later: Vec<(Label, Label)> = vec![];
    for _ in 0..1 + w.random.below(3) {
        w.piece(&mut later);
    }
    w.end();
    if w.random.one_in(2) {
        w.padding();
    }
    while let Some((label, back)) = later.pop() {
        w.block(label, back);
    }
    // And what is behind it, too.
    w.padding();
    for _ in 0..30 {
        w.harmless();
    }
    w.end();
    w.close()?;
    Some(Generated { code: w.code, entry })
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        self.labels.len() - 1
    }

    fn here(&mut self, label: Label) {
        self.labels[label] = Some(self.code.len());
    }

    /// An opcode and the distance to a label, which is `len` bytes long.
    fn to(&mut self, opcode: &[u8], len: usize, label: Label) {
        self.put(opcode);
        self.open.push((self.code.len(), len, label));
        self.put(&[0; 4][..len]);
    }

    /// Fills the distances in.
    fn close(&mut self) -> Option<()> {
        for (at, len, label) in core::mem::take(&mut self.open) {
            let to = self.labels[label].expect("every label is somewhere");
            let distance = to as i64 - (at + len) as i64;
            if len == 1 && i8::try_from(distance).is_err() {
                return None;
            }
            self.code[at..at + len].copy_from_slice(&distance.to_le_bytes()[..len]);
        }
        Some(())
    }

    fn register(&mut self) -> u8 {
        self.random.pick(&FREE)
    }

    /// `opcode` with two registers, of 32 or 64 bits.
    fn two(&mut self, opcode: &[u8], reg: u8, rm: u8) {
        let wide = if self.random.one_in(2) { 8 } else { 0 };
        let rex = 0x40 | wide | reg >> 3 << 2 | rm >> 3;
        if rex != 0x40 || self.random.one_in(8) {
            self.put(&[rex]);
        }
        self.put(opcode);
        self.put(&[0xc0 | (reg & 7) << 3 | rm & 7]);
    }

    /// Something that neither jumps nor calls nor needs to be known.
    fn harmless(&mut self) {
        let (a, b) = (self.register(), self.register());
        let (byte, any) = (self.random.next() as u8, self.random.below(840));
        let pick = |of: &[u8]| of[any % of.len()];
        match self.random.below(16) {
            // mov ebx, eax; mov ebx, ecx: the second byte is that of a return.
            0 => self.put(&[0x89, pick(&[0xc3, 0xeb])]),
            1 => self.two(&[0x89], a, b),
            2 => {
                // mov r, number, which has the bytes of ends and jumps in it.
                let bytes = [0xc3, 0xe9, 0xeb, 0xcc, 0x0f, 0x05, 0x90, byte];
                let n = [0; 4].map(|_| self.random.pick(&bytes));
                self.put(&[0x41, 0xb8 | a & 7][usize::from(a < 8)..]);
                self.put(&n);
            }
            3 => self.two(&[pick(&[0x01, 0x29, 0x31, 0x21, 0x09, 0x11, 0x19])], a, b),
            4 => self.two(&[pick(&[0x39, 0x85])], a, b),
            5 => {
                let operation = self.random.below(8) as u8;
                let rex = 0x48 | a >> 3;
                self.put(&[rex, 0x83, 0xc0 | operation << 3 | a & 7, byte]);
            }
            6 => self.put(&[0x49, 0x89, 0x5f, byte & 0x78]), // mov [r15 + n], rbx
            7 => self.put(&[0x49, 0x8b, 0x57, byte & 0x78]), // mov rdx, [r15 + n]
            8 => self.put(&[0x48, 0x89, 0x74, 0x24, 0x80 | byte & 0x78]), // mov [rsp - n], rsi
            9 => self.put(&[0x48, 0x8b, 0x6c, 0x24, 0x80 | byte & 0x78]), // mov rbp, [rsp - n]
            10 => self.two(&[0x0f, pick(&[0x44, 0x42, 0x4f, 0x48, 0xaf, 0xb7])], a, b),
            11 => self.put(&[0x0f, pick(&[0x92, 0x94, 0x9c]), 0xc3]), // setcc bl
            12 => self.put(&[0xc1, pick(&[0xe3, 0xea, 0xd7]), byte & 31]),
            // lea rdx, [rbx + rdi + n]
            13 => self.put(&[0x48, 0x8d, 0x94, 0x3b, byte, 0xc3, 0xeb, 0x00]),
            14 => self.put(&[0x56, 0x5f]), // push rsi; pop rdi
            _ => self.put(&[0xc7, 0x44, 0x24, 0xb8, 39, 0, 0, 0]), // mov dword [rsp - 72], 39
        }
    }

    fn random_bool(&mut self) -> bool {
        self.random.one_in(2)
    }

    fn several(&mut self, most: usize) {
        for _ in 0..self.random.below(most + 1) {
            self.harmless();
        }
    }

    /// Defines the flags, and returns.
    fn end(&mut self) {
        self.put(&[0x48, 0x85, 0xdb, 0xc3]); // test rbx, rbx; ret
    }

    fn bytes_to_aligned(&self) -> usize {
        (self.base + self.code.len()).next_multiple_of(16) - self.base - self.code.len()
    }

    /// Up to the next aligned address, or to some other.
    fn padding(&mut self) {
        match self.random.below(8) {
            0 => {}
            1 => {
                let len = self.random.pick(&[1, 4]);
                self.put(&[0x90, 0x0f, 0x1f, 0x00][..len]);
            }
            2 => {
                for _ in 0..self.bytes_to_aligned() {
                    self.put(&[0xcc]);
                }
            }
            _ => self.aligned_nops(),
        }
    }

    fn aligned_nops(&mut self) {
        const NOPS: [&[u8]; 4] = [
            &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x66, 0x90],
            &[0x90],
        ];
        for nop in NOPS {
            while self.bytes_to_aligned() >= nop.len() {
                self.put(nop);
            }
        }
    }

    /// A system call, with what is before it and behind it.
    fn piece(&mut self, later: &mut Vec<(Label, Label)>) {
        let number = self.random.pick(&NUMBERS);
        self.several(4);
        if self.random.one_in(6) {
            // A loop's head: padding that is executed.
            self.put(&[0x89, 0xc3]);
            self.aligned_nops();
        }
        let site = self.label();
        match self.random.below(12) {
            8 => {
                // The number is loaded from the operand of an instruction, which stays:
                // mov edx, nr; push rsi; pop rdi; mov eax, [rip + nr]; mov rdi, rsi
                let operand = self.label();
                self.put(&[0xba]);
                self.here(operand);
                self.put(&number.to_le_bytes());
                self.put(&[0x56, 0x5f]);
                self.to(&[0x8b, 0x05], 4, operand);
                if self.random_bool() {
                    self.put(&[0x48, 0x89, 0xf7]);
                }
            }
            9 => {
                // mov eax, r12d; lea rdx, [rip + n]; add rsi, rbx
                self.put(&[0x44, 0x89, 0xe0]);
                self.to(&[0x48, 0x8d, 0x15], 4, site);
                if self.random_bool() {
                    self.put(&[0x48, 0x01, 0xde]);
                }
            }
            10 => {
                // Others come to the middle of the run.
                let middle = self.label();
                self.put(&[0x44, 0x89, 0xe0, 0x48, 0x85, 0xdb]); // test rbx, rbx
                self.to(&[0x0f, 0x88], 4, middle); // js
                self.put(&[0xbe]); // mov esi, number; xor edx, edx
                self.put(&number.to_le_bytes());
                self.here(middle);
                self.put(&[0x31, 0xd2]);
            }
            11 => {
                // What needs the stack is not moved: mov eax, r12d; mov esi, number; mov rdi, rsp.
                self.put(&[0x44, 0x89, 0xe0, 0xbe]);
                self.put(&number.to_le_bytes());
                self.put(&[0x48, 0x89, 0xe7]);
            }
            0 => self.put(&[0x44, 0x89, 0xe0]), // mov eax, r12d
            1 => {
                self.put(&[0x44, 0x89, 0xe0]);
                self.several(3);
            }
            2 => {
                // The number is in a register; what is stored looks like it.
                self.put(&[0x44, 0x89, 0xe0, 0xc7, 0x44, 0x24, 0xb8]);
                self.put(&number.to_le_bytes());
            }
            3 => {
                self.put(&[0x48, 0xc7, 0xc0]);
                self.put(&number.to_le_bytes());
            }
            4 => {
                // Others come to the call itself, with a number of their own.
                self.put(&[0x44, 0x89, 0xe0, 0x48, 0x85, 0xdb]); // test rbx, rbx
                self.to(&[0x0f, 0x88], 4, site); // js
                self.put(&[0xb8]);
                self.put(&number.to_le_bytes());
            }
            _ => {
                self.put(&[0xb8]);
                self.put(&number.to_le_bytes());
            }
        }
        self.here(site);
        self.put(&[0x0f, 0x05]);
        let (error, back) = (self.label(), self.label());
        match self.random.below(6) {
            0..=2 => {
                let limit = self.random.below(2) as u8;
                self.put(&[0x48, 0x3d, limit, 0xf0, 0xff, 0xff]);
                let short = later.is_empty() && self.random.one_in(2);
                self.to(
                    [&[0x0f, 0x87][..], &[0x77]][usize::from(short)],
                    if short { 1 } else { 4 },
                    error,
                );
                later.push((error, back));
            }
            3 => self.put(&[0x0f, 0x92, 0xc3]), // setc bl: the flags from before the call
            4 => self.several(3),
            _ => {}
        }
        match self.random.below(6) {
            0 => {
                // Bytes that look like unreachable padding are the target of a jump.
                let (inside, over) = (self.label(), self.label());
                self.put(&[0x48, 0x85, 0xd2]);
                let long = self.random_bool();
                self.to(
                    [&[0x74][..], &[0x0f, 0x85]][usize::from(long)],
                    if long { 4 } else { 1 },
                    inside,
                );
                self.to(&[0xeb], 1, over);
                self.here(inside);
                self.aligned_nops();
                self.harmless();
                self.here(over);
            }
            1 => {
                // The same by a computed address.
                let inside = self.label();
                self.to(&[0x48, 0x8d, 0x15], 4, inside); // lea rdx, [rip + inside]
                self.put(&[0xff, 0xe2, 0x0f, 0x0b]); // jmp rdx; ud2
                self.put(&[0xeb, 0]);
                self.here(inside);
                self.aligned_nops();
            }
            2 => {
                let over = self.label();
                self.to(&[0xeb], 1, over);
                self.padding();
                self.here(over);
            }
            _ => {}
        }
        self.here(back);
        self.several(3);
    }

    /// Emits the block that an error leads to.
    fn block(&mut self, label: Label, back: Label) {
        self.here(label);
        self.put(&[0xf7, 0xd8, 0x49, 0x89, 0x47, 0x10]); // neg eax; mov [r15 + 16], rax
        if self.random_bool() {
            self.to(&[0xe9], 4, back);
        } else {
            self.end();
        }
        self.padding();
    }
}
