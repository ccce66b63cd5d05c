//! A drawing, as an image of the set that the model was trained with.
//!
//! Its authors prepared what people had written by NIST's programs for hand-printed forms: digits were cut out, scaled to
//! one size, made thinner or thicker, and put upright, as bitmaps of 32 x 32. A pixel of an image counts what is set in
//! 4 x 4 of these.

/// Pixels on a side of the drawing: the page's canvas has as many.
pub const SIDE: usize = 256;

/// Red, green, blue and opacity of pixels, row by row.
pub type Drawing = [[u8; 4]; SIDE * SIDE];

/// Pixels on a side of the bitmap.
const SIZE: usize = 32;

/// How wide the digits of the set are before they are put upright. They are as high as the bitmap.
const WIDTH: usize = 20;

/// How many pixels of a bitmap are set: the set's digits were made thinner and thicker until they had as many.
const LEAST_INK: u32 = 256;
const MOST_INK: u32 = 412;

/// Rows from the top; the lowest bit is the leftmost pixel.
type Bitmap = [u32; SIZE];

/// What the model takes, or [`None`] if nothing is drawn.
pub fn to_input(drawing: &Drawing) -> Option<[f32; 64]> {
    let bitmap = upright(&of_usual_ink(cut_out(drawing)?));
    Some(core::array::from_fn(|at| {
        let (row, column) = (at / 8 * 4, at % 8 * 4);
        let count: u32 = (row..row + 4).map(|row| (bitmap[row] >> column & 0xF).count_ones()).sum();
        count as f32 / 16.0
    }))
}

/// The part that is drawn on, scaled to the usual size.
fn cut_out(drawing: &Drawing) -> Option<Bitmap> {
    let is_set = |x: usize, y: usize| drawing[y * SIDE + x][3] > 127;
    let has_ink = |y: &usize| (0..SIDE).any(|x| is_set(x, *y));
    let (top, bottom) = ((0..SIDE).find(has_ink)?, (0..SIDE).rfind(has_ink)?);
    let has_ink = |x: &usize| (top..=bottom).any(|y| is_set(*x, y));
    let (left, right) = ((0..SIDE).find(has_ink)?, (0..SIDE).rfind(has_ink)?);
    let (from_width, from_height) = (right + 1 - left, bottom + 1 - top);

    // A one that is a single line stays one: nothing gets more than twice as wide for its height.
    let width = (2 * from_width * SIZE / from_height).clamp(1, WIDTH);
    let margin = (SIZE - width) / 2;
    let mut bitmap = [0; SIZE];
    for (row, bits) in bitmap.iter_mut().enumerate() {
        let y = top + (2 * row + 1) * from_height / (2 * SIZE);
        for column in 0..width {
            let x = left + (2 * column + 1) * from_width / (2 * width);
            *bits |= u32::from(is_set(x, y)) << (margin + column);
        }
    }
    Some(bitmap)
}

/// Thinner or thicker lines, until as much is set as is usual.
fn of_usual_ink(mut bitmap: Bitmap) -> Bitmap {
    let ink = |bitmap: &Bitmap| bitmap.iter().map(|row| row.count_ones()).sum::<u32>();
    while ink(&bitmap) > MOST_INK {
        // What is clear grows, and is clear where set pixels were.
        bitmap = grown(&bitmap.map(|row| !row)).map(|row| !row);
    }
    while ink(&bitmap) < LEAST_INK {
        bitmap = grown(&bitmap);
    }
    bitmap
}

/// With the four neighbours of each pixel that is set.
fn grown(bitmap: &Bitmap) -> Bitmap {
    core::array::from_fn(|row| {
        let above = row.checked_sub(1).map_or(0, |above| bitmap[above]);
        let below = bitmap.get(row + 1).unwrap_or(&0);
        above | below | bitmap[row] | bitmap[row] << 1 | bitmap[row] >> 1
    })
}

/// Rows moved sideways so that what is leftmost near the top and near the bottom is one above the other.
fn upright(bitmap: &Bitmap) -> Bitmap {
    let (top, bottom) = (2, SIZE - 3);
    if bitmap[top] == 0 || bitmap[bottom] == 0 {
        return *bitmap;
    }
    let left = |row: usize| bitmap[row].trailing_zeros() as i32;
    let (slant, height) = (left(top) - left(bottom), (bottom - top) as i32);
    core::array::from_fn(|row| {
        let shift = ((row as i32 - SIZE as i32 / 2) * slant + height / 2).div_euclid(height);
        match shift {
            0.. => bitmap[row] << shift,
            _ => bitmap[row] >> -shift,
        }
    })
}
