//! Means over two factors, as a surface seen from the front and above (Diamond 2022, figures 3 and
//! 4), and as a map with the numbers.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::number;
use super::{Analysis, COLOURS, Drawn, Surface, WIDTH, by_factor, scalable};
use crate::stats;

/// A surface's drawing.
const HEIGHT: u32 = 580;
/// How far the eye stands to the side, and how far above.
const AZIMUTH: f64 = 37.5;
const ELEVATION: f64 = 30.0;
/// The sides of its floor and its height, in the units of the drawing.
const SIDE: f64 = 430.0;
const RISE: f64 = 300.0;
/// Where the middle of its floor lies.
const MIDDLE: (f64, f64) = (450.0, 395.0);
/// Lines on its walls.
const LINES: usize = 4;

/// The means of one level of the third factor.
pub(super) struct Grid {
    across: String,
    up: String,
    /// Levels, and where they lie between 0 and 1: by their numbers, where they are such.
    columns: Vec<(String, f64)>,
    rows: Vec<(String, f64)>,
    /// By column and row.
    means: Vec<Vec<Option<f64>>>,
    /// The largest value of all levels of the third factor: their one scale.
    largest: f64,
}

/// A place in the drawing's room: across, up, and the height of the value, each 0 to 1.
type Point = (f64, f64, f64);

impl Grid {
    pub(super) fn of(analysis: &Analysis, surface: &Surface, level: &str) -> Self {
        let Surface { across, up, each } = surface;
        let names = |factor: &str| -> Vec<String> {
            by_factor(analysis, factor).into_iter().map(|it| it.0).collect()
        };
        let (columns, rows) = (names(across), names(up));
        let mean = |column: &String, row: &String| -> Option<f64> {
            let cells = analysis.cells.iter().filter(|cell| {
                let is = |factor: &String, name: &str| {
                    cell.levels.get(factor).map(String::as_str) == Some(name)
                };
                is(across, column) && is(up, row) && is(each, level)
            });
            let runs: Vec<f64> = cells.flat_map(|cell| cell.runs.clone()).collect();
            (!runs.is_empty()).then(|| stats::mean(&runs))
        };
        let means = columns.iter().map(|column| rows.iter().map(|row| mean(column, row)).collect());
        let means = means.collect();
        let all = analysis.cells.iter().flat_map(|it| it.runs.iter().copied());
        let largest = all.fold(1e-9, f64::max);
        let (columns, rows) = (placed(columns), placed(rows));
        Self { across: across.clone(), up: up.clone(), columns, rows, means, largest }
    }

    /// Whether there is room for a surface: a line has none.
    pub(super) fn is_surface(&self) -> bool {
        self.columns.len() > 1 && self.rows.len() > 1
    }

    /// Where a mean lies.
    fn place(&self, column: usize, row: usize) -> Option<Point> {
        let mean = (*self.means.get(column)?.get(row)?)?;
        Some((self.columns[column].1, self.rows[row].1, share(mean, self.largest)))
    }

    /// The surface, the farthest part first.
    pub(super) fn surface(&self, analysis: &Analysis) -> Drawn {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            area.fill(&WHITE)?;
            let grey = RGBColor(200, 200, 200);
            let line = |from: Point, to: Point, colour: &RGBColor| {
                area.draw(&PathElement::new(vec![seen(from), seen(to)], colour))
            };
            let write = |text: &str, at: (i32, i32), (across, down): (HPos, VPos)| {
                let style = TextStyle::from(("sans-serif", 14)).pos(Pos::new(across, down));
                area.draw(&Text::new(text.to_owned(), at, style))
            };
            for at in 0..=LINES {
                let height = at as f64 / LINES as f64;
                line((0.0, 1.0, height), (1.0, 1.0, height), &grey)?;
                line((1.0, 0.0, height), (1.0, 1.0, height), &grey)?;
                let (x, y) = seen((0.0, 1.0, height));
                let text = number(height * self.largest);
                write(&text, (x - 8, y), (HPos::Right, VPos::Center))?;
            }
            for (text, x) in &self.columns {
                line((*x, 0.0, 0.0), (*x, 1.0, 0.0), &grey)?;
                line((*x, 1.0, 0.0), (*x, 1.0, 1.0), &grey)?;
                let (left, top) = seen((*x, 0.0, 0.0));
                write(text, (left + 6, top + 6), (HPos::Left, VPos::Top))?;
            }
            for (text, y) in &self.rows {
                line((0.0, *y, 0.0), (1.0, *y, 0.0), &grey)?;
                line((1.0, *y, 0.0), (1.0, *y, 1.0), &grey)?;
                let (left, top) = seen((0.0, *y, 0.0));
                write(text, (left - 6, top + 6), (HPos::Right, VPos::Top))?;
            }
            line((0.0, 1.0, 0.0), (0.0, 1.0, 1.0), &BLACK)?;
            line((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), &BLACK)?;
            line((0.0, 0.0, 0.0), (0.0, 1.0, 0.0), &BLACK)?;
            let (x, y) = seen((0.5, 0.0, 0.0));
            write(&self.across, (x + 60, y + 40), (HPos::Left, VPos::Top))?;
            let (x, y) = seen((0.0, 0.5, 0.0));
            write(&self.up, (x - 60, y + 40), (HPos::Right, VPos::Top))?;
            let (x, y) = seen((0.0, 1.0, 1.0));
            let of = format!("{} ({})", analysis.response.title, analysis.response.unit);
            write(&of, (x - 40, y - 26), (HPos::Left, VPos::Bottom))?;
            for corners in self.tiles() {
                let height = corners.iter().map(|it| it.2).sum::<f64>() / corners.len() as f64;
                let points: Vec<_> = corners.into_iter().map(seen).collect();
                area.draw(&Polygon::new(points.clone(), blended(height).filled()))?;
                let around = points.iter().copied().chain([points[0]]).collect::<Vec<_>>();
                area.draw(&PathElement::new(around, RGBColor(40, 60, 80)))?;
            }
            area.present()?;
        }
        Ok(scalable(&svg))
    }

    /// Its parts between four means, the farthest from the eye first.
    fn tiles(&self) -> Vec<[Point; 4]> {
        let mut tiles = Vec::new();
        for column in 1..self.columns.len() {
            for row in 1..self.rows.len() {
                let corners = [(column - 1, row - 1), (column, row - 1), (column, row)];
                let last = self.place(column - 1, row);
                let [a, b, c] = corners.map(|(column, row)| self.place(column, row));
                if let (Some(a), Some(b), Some(c), Some(d)) = (a, b, c, last) {
                    tiles.push([a, b, c, d]);
                }
            }
        }
        let far = |tile: &[Point; 4]| tile.iter().map(|it| depth(it.0, it.1)).sum::<f64>();
        tiles.sort_by(|one, other| far(other).total_cmp(&far(one)));
        tiles
    }

    /// The same as a map.
    pub(super) fn map(&self) -> Drawn {
        const CELL: (i32, i32) = (76, 34);
        const LEFT: i32 = 90;
        const TOP: i32 = 20;
        let (columns, rows) = (self.columns.len() as i32, self.rows.len() as i32);
        let (width, height) = (LEFT + CELL.0 * columns + 20, TOP + CELL.1 * rows + 60);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (width as u32, height as u32))
                .into_drawing_area();
            area.fill(&WHITE)?;
            let write = |text: &str, at: (i32, i32), colour: &RGBColor| {
                let place = Pos::new(HPos::Center, VPos::Center);
                let style = TextStyle::from(("sans-serif", 13)).color(colour).pos(place);
                area.draw(&Text::new(text.to_owned(), at, style))
            };
            for (column, (name, _)) in self.columns.iter().enumerate() {
                let left = LEFT + CELL.0 * column as i32;
                for row in 0..self.rows.len() {
                    let top = TOP + CELL.1 * (rows - 1 - row as i32);
                    let Some(value) = self.means[column][row] else { continue };
                    let share = share(value, self.largest);
                    let corners = [(left, top), (left + CELL.0 - 2, top + CELL.1 - 2)];
                    area.draw(&Rectangle::new(corners, blended(share).filled()))?;
                    let ink = if share > 0.55 { WHITE } else { BLACK };
                    write(&number(value), (left + CELL.0 / 2, top + CELL.1 / 2), &ink)?;
                }
                let below = TOP + CELL.1 * rows + 14;
                write(name, (left + CELL.0 / 2, below), &BLACK)?;
            }
            for (row, (name, _)) in self.rows.iter().enumerate() {
                let top = TOP + CELL.1 * (rows - 1 - row as i32);
                write(name, (LEFT - 16, top + CELL.1 / 2), &BLACK)?;
            }
            write(&self.across, (LEFT + CELL.0 * columns / 2, height - 16), &BLACK)?;
            write(&self.up, (30, TOP + CELL.1 * rows / 2), &BLACK)?;
            area.present()?;
        }
        Ok(scalable(&svg))
    }
}

/// Levels with their places: numbers keep their distances, words stand side by side.
fn placed(names: Vec<String>) -> Vec<(String, f64)> {
    let numbers: Vec<f64> = names.iter().filter_map(|it| it.parse().ok()).collect();
    let last = names.len().saturating_sub(1).max(1) as f64;
    let (least, most) = numbers
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(*it), most.max(*it)));
    let is_scale = numbers.len() == names.len() && most > least;
    let place = |at: usize| match is_scale {
        true => (numbers[at] - least) / (most - least),
        false => at as f64 / last,
    };
    names.into_iter().enumerate().map(|(at, name)| (name, place(at))).collect()
}

fn share(value: f64, largest: f64) -> f64 {
    (value / largest).clamp(0.0, 1.0)
}

/// Opaque: what lies behind must not shine through.
fn blended(share: f64) -> RGBColor {
    let strength = 0.06 + 0.94 * share;
    let mix = |part: u8| (255.0 - strength * f64::from(255 - part)).round() as u8;
    RGBColor(mix(COLOURS[0].0), mix(COLOURS[0].1), mix(COLOURS[0].2))
}

/// How far from the eye a place of the floor is.
fn depth(across: f64, up: f64) -> f64 {
    let (sin, cos) = AZIMUTH.to_radians().sin_cos();
    (across - 0.5) * sin + (up - 0.5) * cos
}

/// Where it is seen.
fn seen((across, up, height): Point) -> (i32, i32) {
    let (sin, cos) = AZIMUTH.to_radians().sin_cos();
    let (tilt, upright) = ELEVATION.to_radians().sin_cos();
    let x = ((across - 0.5) * cos - (up - 0.5) * sin) * SIDE;
    let y = -depth(across, up) * tilt * SIDE - height * upright * RISE;
    ((MIDDLE.0 + x) as i32, (MIDDLE.1 + y) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_distances_and_words_stand_side_by_side() {
        let places = |names: &[&str]| -> Vec<f64> {
            placed(names.iter().map(|it| (*it).to_owned()).collect())
                .iter()
                .map(|it| it.1)
                .collect()
        };
        assert_eq!(places(&["1", "2", "5"]), [0.0, 0.25, 1.0]);
        assert_eq!(places(&["read", "write", "send"]), [0.0, 0.5, 1.0]);
        assert_eq!(places(&["8900"]), [0.0]);
    }

    #[test]
    fn higher_values_are_seen_higher_and_farther_tiles_are_drawn_first() {
        let grid = Grid {
            across: "mss".into(),
            up: "threads".into(),
            columns: placed(["1", "2", "3"].map(str::to_owned).into()),
            rows: placed(["1", "2"].map(str::to_owned).into()),
            means: vec![vec![Some(1.0), Some(2.0)], vec![Some(3.0), None], vec![Some(4.0); 2]],
            largest: 4.0,
        };
        assert!(grid.tiles().is_empty(), "a mean is missing in each");
        let grid = Grid { means: vec![vec![Some(1.0), Some(4.0)]; 3], ..grid };
        let tiles = grid.tiles();
        assert_eq!(tiles.len(), 2);
        let first = tiles[0].iter().map(|it| it.0).fold(0.0, f64::max);
        assert_eq!(first, 1.0, "the right one is farther");
        assert!(seen((0.5, 0.5, 1.0)).1 < seen((0.5, 0.5, 0.0)).1);
        assert!(grid.map().unwrap().contains("threads"));
    }
}
