//! What functions find in their context beside ECMAScript.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rquickjs::{
    Ctx, Exception, Function, Persistent, Result, Value,
    prelude::{Opt, Rest},
};

use super::{EMITTED_BYTES_MAX, KEY_BYTES_MAX, LOG_CHARACTERS_MAX, LOGS_MAX, ROWS_MAX, Row};
use crate::canonical;

/// Functions that are easier said in JavaScript.
const PRELUDE: &str = "
function sum(values) {
    var total = 0;
    for (var at = 0; at < values.length; at++) { total += values[at]; }
    return total;
}
function dateToArray(date) {
    var day = date.getUTCDate ? date : new Date(date);
    if (!isFinite(day)) { return null; }
    return [day.getUTCFullYear(), day.getUTCMonth() + 1, day.getUTCDate(),
        day.getUTCHours(), day.getUTCMinutes(), day.getUTCSeconds()];
}
";

/// Says whether `JSON.stringify` does to plain values what it always does.
const PLAIN: &str = "(function () {
    var all = [Object, Array, String, Number, Boolean].map(function (kind) { return kind.prototype; });
    var a = all[0], b = all[1], c = all[2], d = all[3], e = all[4];
    return function () {
        return a.toJSON === undefined && b.toJSON === undefined && c.toJSON === undefined &&
            d.toJSON === undefined && e.toJSON === undefined;
    };
})()";

/// A document of which functions see some members only, although they may emit it whole.
#[derive(Clone)]
pub(super) struct Partial {
    /// The document that functions were given.
    pub(super) given: Persistent<Value<'static>>,
    /// Its text.
    pub(super) given_text: Rc<str>,
    /// The whole document.
    pub(super) whole: Whole,
}

/// The whole of a document of which functions see some members.
#[derive(Clone)]
pub(super) enum Whole {
    /// Its text.
    Here(Rc<str>),
    /// The asking side has it, with so many bytes.
    Elsewhere(u32),
}

/// No text becomes more than so many times as long by being written as `JSON.stringify` does it: `1e20` gets 21 digits.
const GROWTH_MAX: usize = 6;

/// What the functions of a context emitted and logged for one document.
#[derive(Default)]
pub(super) struct Emission {
    rows: RefCell<Vec<Row>>,
    bytes: Cell<usize>,
    logs: RefCell<Vec<String>>,
    partial: RefCell<Option<Partial>>,
    /// What was emitted depends on the whole document, which is elsewhere.
    lacks_whole: Cell<bool>,
    plain: RefCell<Option<Persistent<Function<'static>>>>,
}

impl Emission {
    /// Begins a document. What was emitted before it, by sources or by reductions, belongs to no document.
    pub(super) fn begin(&self, partial: Option<Partial>) {
        self.take_rows();
        *self.partial.borrow_mut() = partial;
        self.lacks_whole.set(false);
        self.logs.borrow_mut().clear();
    }

    /// Ends a document, of which nothing is held any longer.
    pub(super) fn end(&self) -> Vec<String> {
        self.partial.borrow_mut().take();
        self.take_rows();
        std::mem::take(&mut *self.logs.borrow_mut())
    }

    /// Whether rows depend on the whole document, which is elsewhere.
    pub(super) fn lacks_whole(&self) -> bool {
        self.lacks_whole.get()
    }

    /// Gives what was emitted since the last time.
    pub(super) fn take_rows(&self) -> Vec<Row> {
        self.bytes.set(0);
        std::mem::take(&mut *self.rows.borrow_mut())
    }

    /// Lets go of everything that belongs to a context.
    pub(super) fn forget(&self) {
        self.end();
        self.plain.borrow_mut().take();
    }

    fn emit<'js>(&self, ctx: &Ctx<'js>, key: Value<'js>, value: Value<'js>) -> Result<()> {
        let key = stringify(ctx, key)?;
        let (value, value_bytes) = match self.whole_document(ctx, &value)? {
            Some(emitted) => emitted,
            None => {
                let text = stringify(ctx, value)?;
                let bytes = text.len();
                (text, bytes)
            }
        };
        if key.len() >= KEY_BYTES_MAX {
            return Err(Exception::throw_message(ctx, &format!("too long key emitted: {} bytes", key.len())));
        }
        let bytes = self.bytes.get() + key.len() + value_bytes;
        self.bytes.set(bytes);
        if bytes > EMITTED_BYTES_MAX && self.knows_less() {
            self.lacks_whole.set(true);
        }
        if self.lacks_whole.get() {
            // The function is asked again, with the whole document: nothing of this counts.
            return Ok(());
        }
        if bytes > EMITTED_BYTES_MAX {
            return Err(Exception::throw_message(ctx, &format!("too much data emitted: {bytes} bytes")));
        }
        let mut rows = self.rows.borrow_mut();
        if rows.len() >= ROWS_MAX {
            return Err(Exception::throw_message(
                ctx,
                &format!("too many keys emitted, maximum allowed is {ROWS_MAX}"),
            ));
        }
        rows.push(Row { key, value });
        Ok(())
    }

    /// Whether the whole of the document is elsewhere, so that its length is not known exactly.
    fn knows_less(&self) -> bool {
        matches!(&*self.partial.borrow(), Some(Partial { whole: Whole::Elsewhere(_), .. }))
    }

    /// The text of the document and its length at most, where that is what is emitted and functions know a part of it only.
    ///
    /// As long as that part is what it was, the text comes from what is stored. Otherwise the changes are made to the whole
    /// document as well. Where that is elsewhere, the first is left to the other side, and the second is not known here.
    fn whole_document<'js>(&self, ctx: &Ctx<'js>, value: &Value<'js>) -> Result<Option<(String, usize)>> {
        let Some(partial) = self.partial.borrow().clone() else { return Ok(None) };
        let given = partial.given.restore(ctx)?;
        if given != *value {
            return Ok(None);
        }
        let plain = self.plain.borrow().clone();
        let is_plain = match plain {
            Some(plain) => plain.restore(ctx)?.call::<_, bool>(())?,
            None => false,
        };
        let is_as_given = is_plain
            && match canonical::stringified(&partial.given_text) {
                Some(given_text) => stringify(ctx, given.clone())? == given_text,
                None => false,
            };
        let whole = match &partial.whole {
            Whole::Here(whole) => whole,
            Whole::Elsewhere(bytes) => {
                if !is_as_given {
                    self.lacks_whole.set(true);
                }
                let most = usize::try_from(*bytes).unwrap_or(usize::MAX).saturating_mul(GROWTH_MAX);
                return Ok(Some((String::new(), most)));
            }
        };
        if is_as_given && let Some(text) = canonical::stringified(whole) {
            let bytes = text.len();
            return Ok(Some((text, bytes)));
        }
        let whole = ctx.json_parse(whole.as_bytes())?;
        if let (Some(whole), Some(given)) = (whole.as_object(), given.as_object()) {
            for member in given.props::<String, Value<'js>>() {
                let (name, value) = member?;
                whole.set(name, value)?;
            }
        }
        let text = stringify(ctx, whole)?;
        let bytes = text.len();
        Ok(Some((text, bytes)))
    }

    fn log<'js>(&self, ctx: &Ctx<'js>, text: Option<&Value<'js>>) -> Result<()> {
        let Some(text) = text.and_then(Value::as_string) else {
            return Err(Exception::throw_message(ctx, "Error while logging:Log value is not a string"));
        };
        let text = text.to_string()?.chars().take(LOG_CHARACTERS_MAX).collect();
        let mut logs = self.logs.borrow_mut();
        if logs.len() < LOGS_MAX {
            logs.push(text);
        }
        Ok(())
    }
}

/// The text that `JSON.stringify` gives, and `null` where it gives none.
pub(super) fn stringify<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Result<String> {
    match ctx.json_stringify(value)? {
        Some(text) => text.to_string(),
        None => Ok("null".to_owned()),
    }
}

/// Puts the natives into a context.
pub(super) fn install<'js>(ctx: &Ctx<'js>, emission: &Rc<Emission>) -> Result<()> {
    let mut options = rquickjs::context::EvalOptions::default();
    options.strict = false;
    ctx.eval_with_options::<(), _>(PRELUDE, options)?;
    let plain: Function<'js> = ctx.eval(PLAIN)?;
    *emission.plain.borrow_mut() = Some(Persistent::save(ctx, plain));
    let globals = ctx.globals();
    let shared = Rc::clone(emission);
    let emit = move |ctx: Ctx<'js>, key: Opt<Value<'js>>, value: Opt<Value<'js>>, _more: Rest<Value<'js>>| {
        let or_undefined =
            |value: Opt<Value<'js>>| value.0.unwrap_or_else(|| Value::new_undefined(ctx.clone()));
        shared.emit(&ctx, or_undefined(key), or_undefined(value))
    };
    globals.set("emit", Function::new(ctx.clone(), emit)?.with_name("emit")?)?;
    let shared = Rc::clone(emission);
    let log = move |ctx: Ctx<'js>, arguments: Rest<Value<'js>>| shared.log(&ctx, arguments.0.first());
    globals.set("log", Function::new(ctx.clone(), log)?.with_name("log")?)?;
    let decode = move |ctx: Ctx<'js>, arguments: Rest<Value<'js>>| decode_base64(&ctx, arguments.0.first());
    globals.set("decodeBase64", Function::new(ctx.clone(), decode)?.with_name("decodeBase64")?)
}

/// The bytes that a text in base64 means.
fn decode_base64<'js>(ctx: &Ctx<'js>, text: Option<&Value<'js>>) -> Result<Vec<u8>> {
    let throw = |text: &str| match rquickjs::String::from_str(ctx.clone(), text) {
        Ok(text) => ctx.throw(text.into_value()),
        Err(error) => error,
    };
    let Some(text) = text.and_then(Value::as_string) else {
        return Err(throw("Input is not a string"));
    };
    STANDARD.decode(text.to_string()?).map_err(|_| throw("Invalid base64 source."))
}

/// A string in base64.
pub(super) fn base64_value<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Value<'js>> {
    rquickjs::String::from_str(ctx.clone(), &STANDARD.encode(bytes)).map(rquickjs::String::into_value)
}

/// The value of a JSON text.
pub(super) fn parse<'js>(ctx: &Ctx<'js>, text: &str) -> Result<Value<'js>> {
    // With room for the byte that the engine wants behind it.
    let mut bytes = Vec::with_capacity(text.len() + 1);
    bytes.extend_from_slice(text.as_bytes());
    ctx.json_parse(bytes)
}
