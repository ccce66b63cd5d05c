//! A library with a model in it, which is also a C library.

pub mod double {
    niello_runtime::include_model!("double");
}

/// Doubles two numbers for a caller in C.
///
/// # Safety
///
/// `x` and `y` point at two numbers each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn app_double(x: *const [f32; 2], y: *mut [f32; 2]) {
    let mut model = double::Model::new();
    let outputs = model.run(&double::Inputs { x: unsafe { &*x } });
    unsafe { *y = *outputs.y };
}

#[cfg(test)]
mod tests {
    use super::double;

    #[test]
    fn the_librarys_own_tests_link() {
        assert_eq!(*double::Model::new().run(&double::Inputs { x: &[1.0, 2.0] }).y, [2.5, 4.25]);
    }

    #[test]
    fn models_can_be_shared_and_sent() {
        fn check<T: Send + Sync>() {}
        check::<double::Model>();
        check::<double::Model<&mut double::Workspace>>();
    }

    #[test]
    fn inputs_need_the_alignment_of_their_elements_alone() {
        #[repr(align(64))]
        struct Aligned([f32; 3]);
        let aligned = Aligned([0.0, 10.0, 20.0]);
        let x = double::inputs::x::from_slice(&aligned.0[1..]).unwrap();
        assert_eq!(x.as_ptr() as usize % 64, 4);
        let mut y = Aligned([0.0; 3]);
        let mut model = double::Model::new();
        let y1 = double::outputs::y::from_mut_slice(&mut y.0[1..]).unwrap();
        model.run_into(&double::Inputs { x }, &mut double::OutputsMut { y: y1 });
        assert_eq!(y.0, [0.0, 20.5, 40.25]);
    }

    #[test]
    fn a_slice_of_another_length_is_an_error() {
        let error = double::inputs::x::from_slice(&[0.0; 3]).unwrap_err();
        assert_eq!(error.to_string(), "tensor `x` has 2 elements, but 3 were given");
    }

    #[test]
    fn a_workspace_may_be_the_callers() {
        static WORKSPACE: std::sync::Mutex<double::Workspace> =
            std::sync::Mutex::new(double::Workspace::new());
        let mut workspace = WORKSPACE.lock().unwrap();
        let mut model = double::Model::with_workspace(&mut workspace);
        let first = *model.run(&double::Inputs { x: &[1.0, 2.0] }).y;
        // An output is the next input, without a copy.
        let mut second = [0.0; 2];
        let outputs = &mut double::OutputsMut { y: &mut second };
        model.run_into(&double::Inputs { x: &first }, outputs);
        assert_eq!(second, [5.5, 8.75]);
    }
}
