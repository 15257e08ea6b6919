//! Programs of sources.

use super::lexer::{Placed, Token, tokens};

/// Brackets, operators and statements within one another. A program is run by functions that call themselves.
const LEVELS_MAX: u32 = 40;

/// Operators, members and elements of one statement, beside what is within brackets. Each can make a tree one deeper.
const LINKS_MAX: u32 = 200;

/// Longer sources are left to the engine's process, which has a clock.
const SOURCE_BYTES_MAX: usize = 16 << 10;

/// Names of one kind, at most: they are looked for one after the other.
const NAMES_MAX: usize = 64;

/// A map function.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) body: Vec<Statement>,
    /// The members of the document that are read, which are looked for together.
    pub(super) members: Vec<Box<str>>,
    pub(super) locals: usize,
    /// It sets variables that it does not declare.
    pub(super) sets_globals: bool,
}

#[derive(Debug)]
pub(super) enum Statement {
    Emit(Expression, Expression),
    Set(usize, Expression),
    If(Expression, Box<Statement>, Option<Box<Statement>>),
    For(Box<For>),
    Block(Vec<Statement>),
    Return,
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) begin: Vec<(usize, Expression)>,
    pub(super) condition: Option<Expression>,
    pub(super) step: Option<(usize, Expression)>,
    pub(super) body: Statement,
}

#[derive(Clone, Debug)]
pub(super) enum Expression {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Box<str>),
    Document,
    /// A member of the document, by its number.
    OfDocument(usize),
    Meta,
    Id,
    Local(usize),
    Member(Box<Expression>, Box<str>),
    Element(Box<Expression>, Box<Expression>),
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    Choice(Box<(Expression, Expression, Expression)>),
    /// Emitted, and nothing else.
    Array(Vec<Expression>),
    Object(Vec<(Box<str>, Expression)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Minus,
    TypeOf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    And,
    Or,
    Equal,
    Unequal,
    Same,
    NotSame,
    Less,
    LessOrSame,
    Greater,
    GreaterOrSame,
    Plus,
    Minus,
    Times,
    Divided,
    Remainder,
}

/// Operators, those that bind least first.
const OPERATORS: &[&[(&str, Binary)]] = &[
    &[("||", Binary::Or)],
    &[("&&", Binary::And)],
    &[("===", Binary::Same), ("!==", Binary::NotSame), ("==", Binary::Equal), ("!=", Binary::Unequal)],
    &[("<=", Binary::LessOrSame), (">=", Binary::GreaterOrSame), ("<", Binary::Less), (">", Binary::Greater)],
    &[("+", Binary::Plus), ("-", Binary::Minus)],
    &[("*", Binary::Times), ("/", Binary::Divided), ("%", Binary::Remainder)],
];

/// Words that name no variable, or one that means something else.
const NO_NAMES: &[&str] = &[
    "arguments",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "dateToArray",
    "debugger",
    "decodeBase64",
    "default",
    "delete",
    "do",
    "else",
    "emit",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "get",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "log",
    "new",
    "null",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "set",
    "static",
    "sum",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// Members that every object has, or that change what others mean.
const NO_MEMBERS: &[&str] = &[
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toJSON",
    "toLocaleString",
    "toString",
    "valueOf",
];

/// The longest name of a variable that is not declared. No shorter name is one of the engine's, but for `log` and `sum`.
const GLOBAL_LENGTH_MAX: usize = 3;

/// The program of a source, or nothing where that consists of something else.
pub(super) fn program(source: &str) -> Option<Program> {
    (source.len() <= SOURCE_BYTES_MAX).then_some(())?;
    let tokens = tokens(source)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        levels: 0,
        links: 0,
        loops: 0,
        own: None,
        parameters: Vec::new(),
        locals: Vec::new(),
        globals: Vec::new(),
        members: Vec::new(),
    };
    parser.head()?;
    let mut body = Vec::new();
    while !parser.takes("}") {
        body.extend(parser.statement()?);
    }
    (parser.at == tokens.len()).then_some(())?;
    (parser.members.len() <= NAMES_MAX && parser.locals.len() <= NAMES_MAX).then_some(())?;
    let (members, locals) = (parser.members, parser.locals.len());
    Some(Program { body, members, locals, sets_globals: !parser.globals.is_empty() })
}

struct Parser<'t, 'a> {
    tokens: &'t [Placed<'a>],
    at: usize,
    levels: u32,
    /// What the statement has of operators, members and elements so far.
    links: u32,
    loops: u32,
    /// The name of the function.
    own: Option<&'a str>,
    parameters: Vec<&'a str>,
    /// The names of variables, and none for those that are not declared and out of their loop.
    locals: Vec<Option<&'a str>>,
    /// Names that are not declared.
    globals: Vec<&'a str>,
    members: Vec<Box<str>>,
}

impl<'a> Parser<'_, 'a> {
    fn token(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at).map(|placed| &placed.token)
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.token(), Some(Token::Sign(found)) if *found == sign)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.at += usize::from(found);
        found
    }

    fn needs(&mut self, sign: &str) -> Option<()> {
        self.takes(sign).then_some(())
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let found = matches!(self.token(), Some(Token::Word(found)) if *found == word);
        self.at += usize::from(found);
        found
    }

    /// A word that may name a variable.
    fn name(&mut self) -> Option<&'a str> {
        let Some(Token::Word(word)) = self.token() else { return None };
        let word = *word;
        self.at += 1;
        (!NO_NAMES.contains(&word)).then_some(word)
    }

    /// A statement ends here: at its sign, before a brace, or where a line begins with a word that goes on with nothing.
    fn end(&mut self) -> Option<()> {
        if self.takes(";") || self.is("}") {
            return Some(());
        }
        let next = self.tokens.get(self.at)?;
        let goes_on = !matches!(next.token, Token::Word(word) if !matches!(word, "in" | "instanceof"));
        (next.begins_line && !goes_on).then_some(())
    }

    fn deeper<T>(&mut self, call: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.levels += 1;
        let found = if self.levels <= LEVELS_MAX { call(self) } else { None };
        self.levels -= 1;
        found
    }

    /// One more operator, member or element.
    fn link(&mut self) -> Option<()> {
        self.links += 1;
        (self.links <= LINKS_MAX).then_some(())
    }

    fn head(&mut self) -> Option<()> {
        self.takes_word("function").then_some(())?;
        self.own = if self.is("(") { None } else { Some(self.name()?) };
        self.needs("(")?;
        while !self.takes(")") {
            if !self.parameters.is_empty() {
                self.needs(",")?;
            }
            let name = self.name()?;
            (self.parameters.len() < 2 && self.is_new(name)).then_some(())?;
            self.parameters.push(name);
        }
        self.needs("{")
    }

    // ---- statements -----------------------------------------------------------------------------------------------

    fn statement(&mut self) -> Option<Vec<Statement>> {
        self.links = 0;
        self.deeper(Self::any_statement)
    }

    fn one_statement(&mut self) -> Option<Statement> {
        let mut all = self.statement()?;
        if all.len() == 1 { all.pop() } else { Some(Statement::Block(all)) }
    }

    fn any_statement(&mut self) -> Option<Vec<Statement>> {
        if self.takes(";") {
            return Some(Vec::new());
        }
        if self.takes("{") {
            let mut all = Vec::new();
            while !self.takes("}") {
                all.extend(self.statement()?);
            }
            return Some(vec![Statement::Block(all)]);
        }
        if self.takes_word("var") {
            let all = self.declared()?;
            self.end()?;
            return Some(all.into_iter().map(|(local, value)| Statement::Set(local, value)).collect());
        }
        let statement = if self.takes_word("if") {
            return self.condition().map(|statement| vec![statement]);
        } else if self.takes_word("for") {
            return self.counted().map(|statement| vec![statement]);
        } else if self.takes_word("return") {
            let is_bare = self.is(";") || self.is("}") || self.tokens.get(self.at)?.begins_line;
            // What is returned goes nowhere; a constant needs not be asked for.
            let is_constant =
                is_bare || matches!(self.expression()?, Expression::Undefined | Expression::Null);
            is_constant.then_some(Statement::Return)?
        } else if self.takes_word("break") {
            (self.loops > 0).then_some(Statement::Break)?
        } else if self.takes_word("continue") {
            (self.loops > 0).then_some(Statement::Continue)?
        } else if self.takes_word("emit") {
            self.emission()?
        } else {
            let (local, value) = self.change()?;
            Statement::Set(local, value)
        };
        self.end()?;
        Some(vec![statement])
    }

    fn condition(&mut self) -> Option<Statement> {
        self.needs("(")?;
        let condition = self.expression()?;
        self.needs(")")?;
        let then = self.one_statement()?;
        let otherwise = if self.takes_word("else") { Some(Box::new(self.one_statement()?)) } else { None };
        Some(Statement::If(condition, Box::new(then), otherwise))
    }

    /// What is declared with a value, behind `var`.
    fn declared(&mut self) -> Option<Vec<(usize, Expression)>> {
        let mut all = Vec::new();
        loop {
            let name = self.name()?;
            (self.is_new(name) && !self.globals.contains(&name)).then_some(())?;
            let value = if self.takes("=") { Some(self.expression()?) } else { None };
            let local = match self.local(name) {
                Some(local) => local,
                None => self.new_local(name),
            };
            all.extend(value.map(|value| (local, value)));
            if !self.takes(",") {
                return Some(all);
            }
        }
    }

    fn is_new(&self, name: &'a str) -> bool {
        self.own != Some(name) && !self.parameters.contains(&name)
    }

    fn local(&self, name: &str) -> Option<usize> {
        self.locals.iter().position(|known| *known == Some(name))
    }

    fn new_local(&mut self, name: &'a str) -> usize {
        self.locals.push(Some(name));
        self.locals.len() - 1
    }

    fn counted(&mut self) -> Option<Statement> {
        self.needs("(")?;
        let mut global = None;
        let begin = if self.is(";") {
            Vec::new()
        } else if self.takes_word("var") {
            self.declared()?
        } else {
            global = self.undeclared()?;
            vec![self.change()?]
        };
        self.needs(";")?;
        let condition = if self.is(";") { None } else { Some(self.expression()?) };
        self.needs(";")?;
        let step = if self.is(")") { None } else { Some(self.change()?) };
        self.needs(")")?;
        self.loops += 1;
        let body = self.one_statement();
        self.loops -= 1;
        // Behind its loop nothing is known of a variable that is not declared.
        if let Some(known) = global.and_then(|local: usize| self.locals.get_mut(local)) {
            *known = None;
        }
        Some(Statement::For(Box::new(For { begin, condition, step, body: body? })))
    }

    /// A loop sets a variable that is not declared: within the loop it has a value that the function gave it.
    fn undeclared(&mut self) -> Option<Option<usize>> {
        let before = self.at;
        let name = self.name()?;
        let is_set = self.is("=");
        self.at = before;
        is_set.then_some(())?;
        if self.local(name).is_some() {
            return Some(None);
        }
        let is_plain = name.len() <= GLOBAL_LENGTH_MAX && name.bytes().all(|byte| byte.is_ascii_lowercase());
        (is_plain && self.is_new(name)).then_some(())?;
        self.globals.push(name);
        let local = self.new_local(name);
        // Its first value is not made of itself.
        let rest = self.tokens.get(before + 1..)?.iter();
        let mut value = rest.take_while(|placed| placed.token != Token::Sign(";"));
        value.all(|placed| placed.token != Token::Word(name)).then_some(Some(local))
    }

    /// A variable is set.
    fn change(&mut self) -> Option<(usize, Expression)> {
        let name = self.name()?;
        let local = self.local(name)?;
        if self.takes("=") {
            return Some((local, self.expression()?));
        }
        let by = |operator, value| {
            let before = Box::new(Expression::Local(local));
            Some((local, Expression::Binary(operator, before, Box::new(value))))
        };
        // Of something that is no number one more is something else: that is given up when it is run.
        let one = || Expression::Number(1.0);
        // On the next line it belongs to what follows.
        let begins_line = self.tokens.get(self.at)?.begins_line;
        if begins_line && (self.is("++") || self.is("--")) {
            None
        } else if self.takes("++") {
            let minus_one = Expression::Unary(Unary::Minus, Box::new(one()));
            by(Binary::Minus, minus_one)
        } else if self.takes("--") {
            by(Binary::Minus, one())
        } else if self.takes("+=") {
            by(Binary::Plus, self.expression()?)
        } else if self.takes("-=") {
            by(Binary::Minus, self.expression()?)
        } else {
            None
        }
    }

    fn emission(&mut self) -> Option<Statement> {
        self.needs("(")?;
        let mut arguments = [Expression::Undefined, Expression::Undefined].into_iter();
        let mut given = Vec::new();
        while !self.takes(")") {
            if !given.is_empty() {
                self.needs(",")?;
            }
            arguments.next()?;
            given.push(self.emitted()?);
        }
        let mut all = given.into_iter().chain(arguments);
        Some(Statement::Emit(all.next()?, all.next()?))
    }

    // ---- expressions ----------------------------------------------------------------------------------------------

    /// What is emitted may also be an array or an object, which nothing else sees.
    fn emitted(&mut self) -> Option<Expression> {
        self.deeper(|parser| {
            if parser.takes("[") {
                let mut elements = Vec::new();
                while !parser.takes("]") {
                    if !elements.is_empty() {
                        parser.needs(",")?;
                    }
                    elements.push(parser.emitted()?);
                }
                parser.ends_emitted().then_some(Expression::Array(elements))
            } else if parser.takes("{") {
                let object = parser.object()?;
                parser.ends_emitted().then_some(object)
            } else {
                parser.expression()
            }
        })
    }

    fn ends_emitted(&self) -> bool {
        [",", ")", "]", "}"].iter().any(|sign| self.is(sign))
    }

    fn object(&mut self) -> Option<Expression> {
        let mut members: Vec<(Box<str>, Expression)> = Vec::new();
        while !self.takes("}") {
            if !members.is_empty() {
                self.needs(",")?;
            }
            let name: Box<str> = match self.token()? {
                Token::Word(word) => (*word).into(),
                Token::Text(text) => text.as_str().into(),
                _ => return None,
            };
            self.at += 1;
            self.needs(":")?;
            // Names that are indices come first, and of a name that comes twice the last value counts.
            let is_plain = members.len() < NAMES_MAX
                && !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && !NO_MEMBERS.contains(&&*name)
                && members.iter().all(|(known, _)| *known != name);
            is_plain.then_some(())?;
            members.push((name, self.emitted()?));
        }
        Some(Expression::Object(members))
    }

    fn expression(&mut self) -> Option<Expression> {
        self.deeper(|parser| {
            let condition = parser.binary(0)?;
            if !parser.takes("?") {
                return Some(condition);
            }
            let first = parser.expression()?;
            parser.needs(":")?;
            let second = parser.expression()?;
            Some(Expression::Choice(Box::new((condition, first, second))))
        })
    }

    fn binary(&mut self, level: usize) -> Option<Expression> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.is(sign)) {
            self.at += 1;
            self.link()?;
            let right = self.binary(level + 1)?;
            left = Expression::Binary(*operator, Box::new(left), Box::new(right));
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expression> {
        let operator = if self.takes("!") {
            Unary::Not
        } else if self.takes("-") {
            Unary::Minus
        } else if self.takes_word("typeof") {
            Unary::TypeOf
        } else {
            return self.postfix();
        };
        self.deeper(|parser| Some(Expression::Unary(operator, Box::new(parser.unary()?))))
    }

    fn postfix(&mut self) -> Option<Expression> {
        let mut value = self.primary()?;
        loop {
            if self.takes(".") {
                let Some(Token::Word(name)) = self.token() else { return None };
                let name: Box<str> = (*name).into();
                self.at += 1;
                self.link()?;
                value = self.member(value, name)?;
            } else if self.takes("[") {
                let element = self.expression()?;
                self.needs("]")?;
                self.link()?;
                value = match element {
                    Expression::Text(name) => self.member(value, name)?,
                    _ => Expression::Element(Box::new(value), Box::new(element)),
                };
            } else {
                // A call, or a change of something.
                let is_more = ["(", "++", "--"].iter().any(|sign| self.is(sign));
                return (!is_more).then_some(value);
            }
        }
    }

    fn member(&mut self, of: Expression, name: Box<str>) -> Option<Expression> {
        (!NO_MEMBERS.contains(&&*name)).then_some(())?;
        Some(match of {
            // The document may be something that has a length.
            Expression::Document if &*name != "length" => {
                let number = self.members.iter().position(|known| *known == name).unwrap_or_else(|| {
                    self.members.push(name);
                    self.members.len() - 1
                });
                Expression::OfDocument(number)
            }
            Expression::Meta if &*name == "id" => Expression::Id,
            of => Expression::Member(Box::new(of), name),
        })
    }

    fn primary(&mut self) -> Option<Expression> {
        if self.takes("(") {
            let inside = self.expression()?;
            self.needs(")")?;
            return Some(inside);
        }
        let found = match self.token()? {
            Token::Number(number) => Expression::Number(*number),
            Token::Text(text) => Expression::Text(text.as_str().into()),
            Token::Word("undefined") => Expression::Undefined,
            Token::Word("null") => Expression::Null,
            Token::Word("true") => Expression::Bool(true),
            Token::Word("false") => Expression::Bool(false),
            Token::Word(word) => match self.parameters.iter().position(|name| name == word) {
                Some(0) => Expression::Document,
                Some(_) => Expression::Meta,
                None => Expression::Local(self.local(word)?),
            },
            Token::Sign(_) => return None,
        };
        self.at += 1;
        Some(found)
    }
}
