//! Finds when there is a voice in a recording, with a recurrent network that keeps its state.
//!
//! `cargo run -p voice -- FILE...` prints the seconds from when to when there is one in each WAV file,
//! of 16 kHz and one channel. Without a file, the sound is made by this program: noise, in which two
//! vowels are sung. `models/voice.py` tells how the model tells them apart.
//!
//! The sound goes through the model in frames of 32 milliseconds, as from a microphone. What it has
//! heard so far, the model keeps from run to run: a run takes a frame and nothing else, and `reset`
//! has it forget one file before the next.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::process::ExitCode;

use hound::{SampleFormat, WavReader, WavSpec};

mod demo;

mod voice {
    niello_runtime::include_model!("voice");
}

use voice::{Inputs, Model, inputs::samples::LEN as FRAME};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Samples in a second.
const RATE: u32 = 16_000;

/// A frame is of a voice if the model thinks that more probable than not.
const LEAST: f32 = 0.5;

/// From when to when there is a voice, in seconds.
type Segment = (f64, f64);

/// The samples of a WAV file, from -1 to 1.
fn read(file: impl Read) -> Result<Vec<f32>> {
    let reader = WavReader::new(file)?;
    let WavSpec { channels, sample_rate, bits_per_sample, sample_format } = reader.spec();
    if (channels, sample_rate) != (1, RATE) {
        let found = format!("it has {sample_rate} Hz and channels: {channels}");
        let convert = format!("`ffmpeg -i IN.wav -ar {RATE} -ac 1 OUT.wav` converts it");
        return Err(format!("{found}; the model takes {RATE} Hz and one channel: {convert}").into());
    }
    let samples: hound::Result<_> = match sample_format {
        SampleFormat::Float => reader.into_samples().collect(),
        SampleFormat::Int => {
            let most = (f32::from(bits_per_sample) - 1.0).exp2();
            let samples = reader.into_samples::<i32>();
            samples.map(|sample| Ok(sample? as f32 / most)).collect()
        }
    };
    Ok(samples?)
}

/// How probable a voice is in each frame of a sound, the last of which ends in silence.
fn probabilities(model: &mut Model, sound: &[f32]) -> Vec<f32> {
    model.reset();
    let mut frame = [0.0; FRAME];
    let each = sound.chunks(FRAME).map(|samples| {
        let (sound, silence) = frame.split_at_mut(samples.len());
        sound.copy_from_slice(samples);
        silence.fill(0.0);
        model.run(&Inputs { samples: &frame }).probability[0]
    });
    each.collect()
}

/// Frames of a voice that follow each other.
fn segments(probabilities: &[f32]) -> Vec<Segment> {
    let seconds = |frame: usize| (frame * FRAME) as f64 / f64::from(RATE);
    let mut frame = 0;
    let runs = probabilities.chunk_by(|a, b| (*a > LEAST) == (*b > LEAST)).map(|run| {
        let begin = frame;
        frame += run.len();
        (run[0] > LEAST).then(|| (seconds(begin), seconds(frame)))
    });
    runs.flatten().collect()
}

fn print(title: &str, segments: &[Segment]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{title}: {}", if segments.is_empty() { "no voice" } else { "a voice at" })?;
    for (begin, end) in segments {
        writeln!(out, "{begin:.2} - {end:.2}")?;
    }
    Ok(())
}

fn run() -> Result<()> {
    let mut model = Model::new();
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        print("two vowels in noise", &segments(&probabilities(&mut model, &demo::sound())))?;
    }
    for path in paths {
        let sound = File::open(&path).map_err(Into::into).and_then(|f| read(BufReader::new(f)));
        let sound = sound.map_err(|error| format!("cannot use {path}: {error}"))?;
        print(&path, &segments(&probabilities(&mut model, &sound)))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use hound::WavWriter;

    use super::*;

    const SPEC: WavSpec = WavSpec {
        channels: 1,
        sample_rate: RATE,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };

    /// A WAV file of 16-bit integers in memory.
    fn file(spec: WavSpec, sound: &[f32]) -> Cursor<Vec<u8>> {
        let mut file = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut file, spec).unwrap();
        for sample in sound {
            writer.write_sample((sample * 32768.0) as i16).unwrap();
        }
        writer.finalize().unwrap();
        file.set_position(0);
        file
    }

    #[track_caller]
    fn assert_near(found: &[Segment], expected: &[Segment]) {
        let near = |a: f64, b: f64| (a - b).abs() < 0.1;
        let same = found.iter().zip(expected).all(|(a, b)| near(a.0, b.0) && near(a.1, b.1));
        assert!(found.len() == expected.len() && same, "{found:?} is not {expected:?}");
    }

    #[test]
    fn vowels_are_found_where_they_are() {
        let sound = read(file(SPEC, &demo::sound())).unwrap();
        let found = segments(&probabilities(&mut Model::new(), &sound));
        assert_near(&found, &demo::VOWELS.map(|vowel| (vowel.begin, vowel.end)));
    }

    #[test]
    fn noise_and_silence_are_no_voice() {
        for loudness in [0.0, 0.001, 0.01] {
            let sound = demo::noise(3.0, loudness);
            let probabilities = probabilities(&mut Model::new(), &sound);
            assert!(probabilities.iter().all(|&voice| voice < 0.1), "{loudness}");
        }
    }

    #[test]
    fn a_model_that_is_reset_has_heard_nothing() {
        let sound = demo::sound();
        let mut model = Model::new();
        let first = probabilities(&mut model, &sound);
        assert_eq!(probabilities(&mut model, &sound), first);
        assert_eq!(probabilities(&mut Model::new(), &sound), first);
    }

    #[test]
    fn the_state_goes_from_frame_to_frame() {
        let mut model = Model::new();
        let vowel = demo::VOWELS[0];
        let second = &demo::sound()[vowel.samples()][..RATE as usize / 2];
        let heard = probabilities(&mut model, second);
        // The silence is the same, but a voice has just been there.
        let after = model.run(&Inputs { samples: &[0.0; FRAME] }).probability[0];
        model.reset();
        let anew = model.run(&Inputs { samples: &[0.0; FRAME] }).probability[0];
        assert!(heard.iter().all(|&voice| voice > 0.5), "{heard:?}");
        assert!(after > 2.0 * anew, "{after} {anew}");
    }

    #[test]
    fn a_sound_may_end_within_a_frame() {
        let probabilities = probabilities(&mut Model::new(), &[0.0; FRAME + 1]);
        assert_eq!(probabilities.len(), 2);
        assert_eq!(segments(&[0.9, 0.1, 0.6, 0.7]), [(0.0, 0.032), (0.064, 0.128)]);
        assert_eq!(segments(&[]), []);
    }

    #[test]
    fn samples_of_all_formats_are_read() {
        assert_eq!(read(file(SPEC, &[0.5, -1.0])).unwrap(), [0.5, -1.0]);
        let spec = WavSpec { bits_per_sample: 32, sample_format: SampleFormat::Float, ..SPEC };
        let mut file = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut file, spec).unwrap();
        writer.write_sample(0.25f32).unwrap();
        writer.finalize().unwrap();
        file.set_position(0);
        assert_eq!(read(file).unwrap(), [0.25]);
    }

    #[test]
    fn other_rates_and_channels_are_errors() {
        for (sample_rate, channels) in [(44_100, 1), (RATE, 2)] {
            let file = file(WavSpec { sample_rate, channels, ..SPEC }, &[0.0; 4]);
            let error = read(file).unwrap_err().to_string();
            let found = format!("{sample_rate} Hz and channels: {channels};");
            assert!(error.contains(&found) && error.contains("ffmpeg"), "{error}");
        }
    }

    #[test]
    fn what_is_no_wav_file_is_an_error() {
        assert!(read(&b"no sound"[..]).is_err());
    }
}
