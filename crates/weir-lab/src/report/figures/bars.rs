//! Bars in groups: a group a level, a bar a series.

use plotters::prelude::*;

use super::{Drawn, WIDTH, colour, scalable};

/// Series by name, each a value by level. Bars carry their values.
pub(in crate::report) fn bars(
    series: &[(String, Vec<(String, f64)>)],
    across: &str,
    up: &str,
) -> Drawn {
    let mut levels: Vec<&String> = Vec::new();
    for (level, _) in series.iter().flat_map(|it| &it.1) {
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    levels.sort_by(|a, b| crate::stats::table::by_size(a, b));
    let largest = series.iter().flat_map(|it| &it.1).map(|it| it.1).fold(1e-9, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 380)).into_drawing_area();
        area.fill(&WHITE)?;
        let count = levels.len() as f64;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .margin_right(160)
            .x_label_area_size(46)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..count, 0.0..largest * 1.15)?;
        let name = |at: &f64| {
            let middle = (at - at.floor() - 0.5).abs() < 0.01;
            let level = levels.get(at.floor() as usize).filter(|_| middle);
            level.map_or_else(String::new, |it| (*it).clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(levels.len() * 2 + 1)
            .x_label_formatter(&name)
            .x_desc(across)
            .y_desc(up)
            .label_style(("sans-serif", 13))
            .draw()?;
        let width = 0.84 / series.len().max(1) as f64;
        for (nth, (tool, points)) in series.iter().enumerate() {
            let colour = colour(nth);
            for (level, value) in points {
                let Some(group) = levels.iter().position(|it| *it == level) else { continue };
                let left = group as f64 + 0.08 + nth as f64 * width;
                let corners = [(left, 0.0), (left + width * 0.92, *value)];
                chart.draw_series([Rectangle::new(corners, colour.mix(0.85).filled())])?;
            }
            let (right, top) = chart.backend_coord(&(count, largest * 1.15));
            let y = top + 16 + 18 * nth as i32;
            area.draw(&Rectangle::new([(right + 14, y), (right + 26, y + 10)], colour.filled()))?;
            area.draw(&Text::new(tool.clone(), (right + 32, y - 1), ("sans-serif", 13)))?;
        }
        area.present()?;
    }
    Ok(scalable(&svg))
}
