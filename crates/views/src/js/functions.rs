//! The functions of an index, compiled.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};

use rquickjs::{
    Context, Ctx, Function, Persistent, Result as JsResult, Runtime, Value,
    context::{EvalOptions, intrinsic},
};

use super::{
    Body, Document, Failure, FailureKind, Limits, Mapped, REDUCTION_BYTES_MAX, Sources,
    failure::FILE,
    natives::{self, Emission, Partial, Whole},
    values::Reader,
    watch::Watch,
};
use crate::{
    analysis::{self, Need},
    canonical,
    design::{Compiler, Invalid},
};

/// What contexts have of ECMAScript: everything but weak references and the clock of high resolution.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

type Compiled = Persistent<Function<'static>>;

/// A runtime with compiled functions. Fields are dropped in this order: what belongs to a runtime goes before it.
struct Realm {
    maps: Vec<Compiled>,
    reduces: Vec<Compiled>,
    reader: RefCell<Reader>,
    context: Context,
    runtime: Runtime,
}

/// The functions of an index.
pub struct Functions {
    emission: Rc<Emission>,
    realm: Option<Realm>,
    watch: Watch,
    sources: Sources,
    limits: Limits,
    need: Need,
    /// The members of `meta` that they look at; all of them where that is not known.
    meta_need: Option<BTreeSet<String>>,
}

impl Drop for Functions {
    fn drop(&mut self) {
        self.emission.forget();
    }
}

impl Functions {
    /// Compiles functions. With `analysed` documents are read only as far as the functions look at them.
    ///
    /// # Errors
    /// A source is no function, or the engine has no room.
    pub fn new(sources: Sources, limits: Limits, analysed: bool) -> Result<Self, Failure> {
        let need = if analysed { analysis::need_of_all(&sources.maps) } else { Need::Whole };
        let meta_need = if analysed { analysis::meta_need_of_all(&sources.maps) } else { None };
        let (emission, watch) = Default::default();
        let mut functions = Self { emission, realm: None, watch, sources, limits, need, meta_need };
        functions.prepare()?;
        Ok(functions)
    }

    /// What the map functions look at.
    #[must_use]
    pub fn need(&self) -> &Need {
        &self.need
    }

    /// Sets how long all functions may take over one document, from now on.
    pub fn set_time(&mut self, time: Duration) {
        self.limits.time = time;
    }

    /// Asks all map functions about a document.
    pub fn map(&mut self, document: &Document<'_>) -> Mapped {
        if let Err(failure) = self.prepare() {
            return Mapped { rows: Err(failure), logs: Vec::new() };
        }
        let Some(realm) = &self.realm else { return Mapped { rows: Ok(Vec::new()), logs: Vec::new() } };
        self.watch.start(self.limits.time);
        let rows = realm.context.with(|ctx| self.map_in(realm, &ctx, document));
        let rows = realm.run_jobs(&self.watch).and(rows);
        self.watch.stop();
        let logs = self.emission.end();
        let spoils = match &rows {
            Err(failure) => failure.kind.spoils(),
            Ok(rows) => rows.iter().any(|rows| rows.as_ref().is_err_and(|failure| failure.kind.spoils())),
        };
        if spoils {
            self.discard();
        }
        Mapped { rows, logs }
    }

    /// Reduces values with the function of this number; `keys` are as many as the values, and none when reductions are
    /// reduced again.
    ///
    /// # Errors
    /// The function failed, or its result is too large.
    pub fn reduce(
        &mut self,
        function: usize,
        keys: Option<&[&str]>,
        values: &[&str],
    ) -> Result<String, Failure> {
        self.prepare()?;
        let Some(realm) = &self.realm else {
            return Err(Failure::new(FailureKind::NotAFunction, "no such reduction"));
        };
        self.watch.start(self.limits.time);
        let reduced = realm.context.with(|ctx| {
            realm.reduce(&ctx, function, keys, values).map_err(|error| Failure::of(&ctx, &self.watch, error))
        });
        let reduced = realm.run_jobs(&self.watch).and(reduced);
        self.watch.stop();
        self.emission.end();
        if reduced.as_ref().is_err_and(|failure| failure.kind.spoils()) {
            self.discard();
        }
        let reduced = reduced?;
        if reduced.len() > REDUCTION_BYTES_MAX {
            return Err(Failure::new(FailureKind::Thrown, "reduction too large"));
        }
        Ok(reduced)
    }

    fn discard(&mut self) {
        self.emission.forget();
        self.realm = None;
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        if self.realm.is_some() {
            return Ok(());
        }
        let no_room = |_| Failure::new(FailureKind::Memory, "no room for a context");
        let runtime = Runtime::new().map_err(no_room)?;
        runtime.set_memory_limit(self.limits.memory);
        runtime.set_max_stack_size(self.limits.stack);
        let watch = self.watch.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || watch.is_over())));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(no_room)?;
        self.watch.start(self.limits.time);
        let compiled = context.with(|ctx| {
            natives::install(&ctx, &self.emission).map_err(|error| Failure::of(&ctx, &self.watch, error))?;
            let all = |sources: &[String]| -> Result<Vec<Compiled>, Failure> {
                let one = |source: &String| {
                    let compiled = compile(&ctx, &self.watch, source)?;
                    Ok(Persistent::save(&ctx, compiled))
                };
                sources.iter().map(one).collect()
            };
            Ok((all(&self.sources.maps)?, all(&self.sources.reduces)?))
        });
        self.watch.stop();
        match compiled {
            Ok((maps, reduces)) => {
                let reader = RefCell::default();
                self.realm = Some(Realm { maps, reduces, reader, context, runtime });
                Ok(())
            }
            Err(failure) => {
                self.emission.forget();
                Err(failure)
            }
        }
    }

    fn map_in(
        &self,
        realm: &Realm,
        ctx: &Ctx<'_>,
        document: &Document<'_>,
    ) -> Result<Vec<Result<Vec<super::Row>, Failure>>, Failure> {
        let invalid = |error| {
            let failure = Failure::of(ctx, &self.watch, error);
            if failure.kind.spoils() {
                failure
            } else {
                Failure::new(FailureKind::Document, "the document is no JSON")
            }
        };
        let reader = &mut *realm.reader.borrow_mut();
        let meta = self.meta(ctx, reader, document.meta).map_err(invalid)?;
        let (value, partial) = self.value(ctx, reader, &document.body).map_err(invalid)?;
        self.emission.begin(partial);
        let mut all = Vec::with_capacity(realm.maps.len());
        for map in &realm.maps {
            let outcome = map
                .clone()
                .restore(ctx)
                .and_then(|map| map.call::<_, Value<'_>>((value.clone(), meta.clone())));
            let rows = self.emission.take_rows();
            match outcome {
                Ok(_) => all.push(Ok(rows)),
                Err(error) => {
                    let failure = Failure::of(ctx, &self.watch, error);
                    if failure.kind == FailureKind::Timeout {
                        return Err(failure);
                    }
                    all.push(Err(failure));
                }
            }
        }
        if self.emission.lacks_whole() {
            return Err(Failure::new(FailureKind::Part, "rows depend on the whole document"));
        }
        Ok(all)
    }

    /// The object `meta`, with the members that functions look at: to parse one takes less than to parse nine.
    fn meta<'js>(&self, ctx: &Ctx<'js>, reader: &mut Reader, text: &str) -> JsResult<Value<'js>> {
        match self.meta_need.as_ref().and_then(|names| canonical::projected(text, names)) {
            Some(part) => reader.parse(ctx, &part),
            None => reader.parse(ctx, text),
        }
    }

    /// The document that functions are given, and what is left out of it.
    fn value<'js>(
        &self,
        ctx: &Ctx<'js>,
        reader: &mut Reader,
        body: &Body<'_>,
    ) -> JsResult<(Value<'js>, Option<Partial>)> {
        let text = match body {
            Body::Unused => return Ok((Value::new_undefined(ctx.clone()), None)),
            Body::Binary(bytes) => return natives::base64_value(ctx, bytes).map(|value| (value, None)),
            Body::Json(text) => *text,
            Body::Part { text, whole_bytes } => {
                let value = reader.parse(ctx, text)?;
                let (given, given_text) = (Persistent::save(ctx, value.clone()), (*text).into());
                return Ok((
                    value,
                    Some(Partial { given, given_text, whole: Whole::Elsewhere(*whole_bytes) }),
                ));
            }
        };
        match &self.need {
            Need::Nothing => Ok((Value::new_undefined(ctx.clone()), None)),
            Need::Whole => reader.parse(ctx, text).map(|value| (value, None)),
            Need::Members { names, emitted } => {
                let Some(part) = canonical::projected(text, names) else {
                    return reader.parse(ctx, text).map(|value| (value, None));
                };
                let value = reader.parse(ctx, &part)?;
                let given = Persistent::save(ctx, value.clone());
                let whole = Whole::Here(text.into());
                let partial = emitted.then(|| Partial { given, given_text: part.into(), whole });
                Ok((value, partial))
            }
        }
    }
}

impl Realm {
    /// Runs what promises have left to be done. Until then the engine keeps the document that it was given. What is emitted here comes
    /// too late.
    ///
    /// # Errors
    /// There is more and more of it until the time is up.
    fn run_jobs(&self, watch: &Watch) -> Result<(), Failure> {
        // A job that throws is done as well.
        while self.runtime.execute_pending_job().unwrap_or(true) {
            if watch.is_over() {
                return Err(Failure::new(FailureKind::Timeout, "timeout"));
            }
        }
        Ok(())
    }

    fn reduce(
        &self,
        ctx: &Ctx<'_>,
        function: usize,
        keys: Option<&[&str]>,
        values: &[&str],
    ) -> JsResult<String> {
        let function = self.reduces.get(function).ok_or(rquickjs::Error::Unknown)?.clone().restore(ctx)?;
        let array = |texts: &[&str]| natives::parse(ctx, &format!("[{}]", texts.join(",")));
        let rereduce = keys.is_none();
        let keys = match keys {
            Some(keys) => array(keys)?,
            None => Value::new_null(ctx.clone()),
        };
        let reduced: Value<'_> = function.call((keys, array(values)?, rereduce))?;
        natives::stringify(ctx, reduced)
    }
}

/// Compiles one function as Couchbase does, within parentheses.
fn compile<'js>(ctx: &Ctx<'js>, watch: &Watch, source: &str) -> Result<Function<'js>, Failure> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(FILE.to_owned());
    let value: Value<'js> = ctx
        .eval_with_options(format!("({source})"), options)
        .map_err(|error| Failure::of(ctx, watch, error))?;
    value
        .into_function()
        .ok_or_else(|| Failure::new(FailureKind::NotAFunction, format!("Invalid function: ({source})")))
}

/// Checks functions of design documents, each in a context of its own.
#[derive(Debug, Default)]
pub struct Checker {
    /// What compiling may take.
    pub limits: Limits,
}

impl Compiler for Checker {
    fn check(&mut self, source: &str) -> Result<(), Invalid> {
        let sources = Sources { maps: vec![source.to_owned()], reduces: Vec::new() };
        match Functions::new(sources, self.limits, false) {
            Ok(_) => Ok(()),
            Err(failure) if failure.kind == FailureKind::NotAFunction => Err(Invalid::NotAFunction),
            Err(failure) => Err(Invalid::Syntax(failure.text)),
        }
    }
}
